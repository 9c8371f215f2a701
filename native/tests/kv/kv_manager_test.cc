#include "kv/kv_manager.h"

#include <numeric>

#include "deepinfer/status.h"
#include "testing.h"

using namespace deepinfer;

namespace {

constexpr int32_t kAll = 1 << 30;

CacheGroupSpec paged(int block_tokens) { return {"paged", CacheKind::kPaged, block_tokens, 0}; }
CacheGroupSpec per_sequence() { return {"state", CacheKind::kSequence, 1, 0}; }

std::vector<int32_t> iota(int32_t size, int32_t first = 0) {
  std::vector<int32_t> tokens(static_cast<size_t>(size));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

KvManager manager(std::vector<CacheGroupSpec> groups, std::vector<int32_t> sizes, bool prefix_cache = true) {
  return {std::move(groups), sizes, prefix_cache};
}

}  // namespace

TEST(a_second_sequence_shares_full_blocks) {
  KvManager kv = manager({paged(4)}, {10});
  const std::vector<int32_t> tokens = iota(10);
  SequenceBlocks a, b;
  CHECK_EQ(kv.admit(a, tokens, 10, kAll, 0), 0);
  kv.publish(a, tokens, 10);
  CHECK_EQ(kv.admit(b, tokens, 10, 9, 0), 8);
  CHECK_EQ(a.groups[0].blocks[1], b.groups[0].blocks[1]);
  CHECK(a.groups[0].blocks[2] != b.groups[0].blocks[2]);
  CHECK_EQ(kv.num_blocks_used(), 4);
  const SequenceBlocks* both[] = {&a, &b};
  kv.check_integrity(both);
  kv.release(a);
  SequenceBlocks c;
  CHECK_EQ(kv.admit(c, tokens, 10, 7, 0), 4);  // scores are wanted from position 8 on
  kv.release(b);
  kv.release(c);
  CHECK_EQ(kv.num_blocks_used(), 0);
  CHECK_EQ(kv.admit(a, tokens, 10, kAll, 0), 8);  // free blocks are still findable
}

TEST(only_computed_blocks_are_shared) {
  KvManager kv = manager({paged(4)}, {10});
  const std::vector<int32_t> tokens = iota(12);
  SequenceBlocks a, b;
  kv.admit(a, tokens, 12, kAll, 0);
  kv.publish(a, tokens, 7);
  CHECK_EQ(kv.admit(b, tokens, 12, kAll, 0), 4);
}

TEST(the_cache_can_be_off) {
  KvManager kv = manager({paged(4)}, {10}, false);
  const std::vector<int32_t> tokens = iota(8);
  SequenceBlocks a, b;
  kv.admit(a, tokens, 8, kAll, 0);
  kv.publish(a, tokens, 8);
  CHECK_EQ(kv.admit(b, tokens, 8, kAll, 0), 0);
}

TEST(equal_blocks_computed_twice_become_one) {
  KvManager kv = manager({paged(4)}, {10});
  const std::vector<int32_t> tokens = iota(8);
  SequenceBlocks a, b;
  kv.admit(a, tokens, 8, kAll, 0);
  kv.admit(b, tokens, 8, kAll, 0);
  kv.publish(a, tokens, 8);
  CHECK_EQ(kv.num_blocks_used(), 4);
  kv.publish(b, tokens, 8);
  CHECK_EQ(kv.num_blocks_used(), 2);
  CHECK(a.groups[0].blocks == b.groups[0].blocks);
  const SequenceBlocks* both[] = {&a, &b};
  kv.check_integrity(both);
}

TEST(groups_of_other_block_sizes_share_up_to_a_common_border) {
  KvManager kv = manager({paged(4), paged(6)}, {20, 20});
  const std::vector<int32_t> tokens = iota(30);
  SequenceBlocks a, b, c;
  kv.admit(a, tokens, 30, kAll, 0);
  kv.publish(a, tokens, 30);
  CHECK_EQ(kv.admit(b, tokens, 30, 29, 0), 24);
  CHECK_EQ(kv.admit(c, tokens, 30, 23, 0), 12);
  const SequenceBlocks* all[] = {&a, &b, &c};
  kv.check_integrity(all);
}

TEST(a_group_per_sequence_turns_sharing_off_and_needs_one_block) {
  KvManager kv = manager({paged(4), per_sequence()}, {20, 2});
  const std::vector<int32_t> tokens = iota(8);
  SequenceBlocks a, b, c;
  CHECK_EQ(kv.admit(a, tokens, 8, kAll, 5), 0);  // spare blocks are for groups that grow
  kv.publish(a, tokens, 8);
  CHECK_EQ(kv.admit(b, tokens, 8, kAll, 5), 0);
  CHECK_EQ(kv.admit(c, tokens, 8, kAll, 0), -1);
  CHECK(c.groups.empty());
}

TEST(no_room_changes_nothing) {
  KvManager kv = manager({paged(4)}, {3});
  SequenceBlocks a, b;
  CHECK_EQ(kv.admit(a, iota(12), 12, kAll, 1), -1);
  CHECK_EQ(kv.admit(a, iota(8), 8, kAll, 1), 0);
  CHECK_EQ(kv.admit(b, iota(5), 5, kAll, 0), -1);
  CHECK_EQ(kv.num_blocks_used(), 2);
  CHECK(kv.grow(a, 12));
  CHECK(!kv.grow(a, 13));
  CHECK_EQ(std::ssize(a.groups[0].blocks), 3);
  CHECK(kv.why_never(12).empty());
  CHECK(kv.why_never(13).find("4 cache blocks of 4 tokens") != std::string::npos);
}

TEST(cached_blocks_that_are_free_count_as_room_only_once) {
  KvManager kv = manager({paged(4)}, {3});
  const std::vector<int32_t> tokens = iota(16);
  SequenceBlocks a, b;
  kv.admit(a, tokens, 8, kAll, 0);
  kv.publish(a, tokens, 8);
  kv.release(a);
  CHECK_EQ(kv.admit(b, tokens, 16, kAll, 0), -1);  // two found, two more needed, three there
  CHECK_EQ(kv.admit(b, tokens, 12, kAll, 0), 8);
}

TEST(forks_share_full_blocks_and_copy_the_partial_one) {
  KvManager kv = manager({paged(4), per_sequence()}, {10, 3});
  const std::vector<int32_t> tokens = iota(10);
  SequenceBlocks a, b, c;
  std::vector<BlockCopy> copies;
  kv.admit(a, tokens, 10, kAll, 0);
  CHECK(kv.fork(a, b, 10, 0, copies));
  CHECK_EQ(copies.size(), 2u);
  CHECK_EQ(copies[0].source, a.groups[0].blocks[2]);
  CHECK_EQ(copies[0].destination, b.groups[0].blocks[2]);
  CHECK_EQ(copies[1].group, 1);
  CHECK(kv.fork(a, c, 8, 0, copies));
  CHECK_EQ(copies.size(), 3u);  // nothing partial but the state
  const SequenceBlocks* all[] = {&a, &b, &c};
  kv.check_integrity(all);
  SequenceBlocks d;
  CHECK(!kv.fork(a, d, 10, 0, copies));
  CHECK_EQ(copies.size(), 3u);
  kv.release(a);
  kv.release(b);
  kv.release(c);
  CHECK_EQ(kv.num_blocks_used(), 0);
}

TEST(a_prefix_that_is_being_computed_is_worth_waiting_for) {
  KvManager kv = manager({paged(4)}, {20});
  const std::vector<int32_t> tokens = iota(12), others = iota(12, 50);
  SequenceBlocks a, b, c;
  CHECK(!kv.is_prefix_coming(b, tokens, 11));
  kv.admit(a, tokens, 12, 11, 0);
  CHECK(kv.is_prefix_coming(b, tokens, 11));
  CHECK(!kv.is_prefix_coming(b, tokens, 3));  // may not share it
  CHECK(!kv.is_prefix_coming(c, others, 11));
  kv.publish(a, tokens, 4);
  CHECK(kv.is_prefix_coming(b, tokens, 11));  // one block is there, the next is coming
  kv.publish(a, tokens, 8);
  CHECK(!kv.is_prefix_coming(b, tokens, 11));  // all that can be shared is there
  CHECK(kv.is_prefix_coming(b, tokens, 12));
  const SequenceBlocks* holders[] = {&a};
  kv.check_integrity(holders);
  kv.release(a);
  CHECK(!kv.is_prefix_coming(b, tokens, 12));
  kv.check_integrity({});
}

TEST(a_chain_survives_the_loss_of_its_parent_block) {
  KvManager kv = manager({paged(4)}, {4});
  const std::vector<int32_t> tokens = iota(8);
  SequenceBlocks a, b;
  kv.admit(a, tokens, 8, kAll, 0);
  kv.publish(a, tokens, 8);
  kv.release(a);
  kv.admit(b, iota(16, 100), 16, kAll, 0);  // takes every block
  kv.release(b);
  kv.admit(a, tokens, 8, kAll, 0);
  kv.publish(a, tokens, 8);
  kv.release(a);
  SequenceBlocks c;
  CHECK_EQ(kv.admit(c, tokens, 8, kAll, 0), 8);
}

TEST_MAIN()
