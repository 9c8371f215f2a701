#include "kv/block_pool.h"

#include <algorithm>
#include <random>

#include "deepinfer/status.h"
#include "testing.h"

using namespace deepinfer;

namespace {

constexpr int32_t kTokens[] = {1, 2, 3, 4};

}  // namespace

TEST(blocks_are_found_by_content_and_parent) {
  BlockPool pool(3, 4);
  const int32_t a = pool.allocate();
  const uint64_t hash = chain_hash(0, kTokens);
  CHECK_EQ(pool.find(hash, BlockPool::kRoot, kTokens), -1);
  pool.publish(a, hash, BlockPool::kRoot, kTokens);
  CHECK_EQ(pool.find(hash, BlockPool::kRoot, kTokens), a);
  CHECK_EQ(pool.find(hash, pool.serial(a), kTokens), -1);  // another parent
  const int32_t other[] = {1, 2, 3, 5};
  CHECK_EQ(pool.find(hash, BlockPool::kRoot, other), -1);  // a hash that collides
  CHECK_EQ(pool.find(hash + 1, BlockPool::kRoot, kTokens), -1);
}

TEST(free_blocks_keep_their_content_until_reused_oldest_first) {
  BlockPool pool(3, 4);
  int32_t blocks[3];
  uint64_t hashes[3];
  for (int i = 0; i < 3; ++i) {
    const int32_t tokens[] = {i, i, i, i};
    blocks[i] = pool.allocate();
    hashes[i] = chain_hash(0, tokens);
    pool.publish(blocks[i], hashes[i], BlockPool::kRoot, tokens);
  }
  for (const int i : {1, 0, 2}) pool.release(blocks[i]);
  CHECK_EQ(pool.num_free(), 3);
  pool.share(blocks[1]);  // found again: saved from reuse
  CHECK_EQ(pool.allocate(), blocks[0]);
  CHECK_EQ(pool.serial(blocks[0]), BlockPool::kRoot);
  const int32_t tokens[] = {0, 0, 0, 0};
  CHECK_EQ(pool.find(hashes[0], BlockPool::kRoot, tokens), -1);
  CHECK_EQ(pool.allocate(), blocks[2]);
  CHECK_EQ(pool.num_free(), 0);
  CHECK_THROWS(Error, pool.allocate());
  pool.check_integrity(std::vector<int32_t>{1, 1, 1});
}

TEST(blocks_without_content_are_reused_first) {
  BlockPool pool(2, 4);
  const int32_t a = pool.allocate(), b = pool.allocate();
  pool.publish(a, 1, BlockPool::kRoot, kTokens);
  pool.release(a);
  pool.release(b);
  CHECK_EQ(pool.allocate(), b);
}

TEST(memory_grows_with_the_blocks_in_use_not_to_the_whole_pool) {
  BlockPool pool(800, 4);
  int32_t next = 0;
  const auto one_row = [&](int num_blocks) {
    std::vector<int32_t> held;
    for (int i = 0; i < num_blocks; ++i) {
      const int32_t tokens[] = {next, next, next, ++next};
      held.push_back(pool.allocate());
      pool.publish(held.back(), chain_hash(0, tokens), BlockPool::kRoot, tokens);
    }
    for (; !held.empty(); held.pop_back()) pool.release(held.back());
  };
  for (int row = 0; row < 100; ++row) one_row(10);  // 1,000 blocks of content, 10 at a time
  CHECK_EQ(pool.num_touched(), 109);                // an eighth is kept in any case
  CHECK_EQ(pool.num_free(), 800);
  one_row(300);  // what is kept may be as much as what is in use
  CHECK_EQ(pool.num_touched(), 399);
  for (int row = 0; row < 5; ++row) one_row(200);
  CHECK_EQ(pool.num_touched(), 399);
  std::vector<int32_t> held;
  for (int i = 0; i < 800; ++i) held.push_back(pool.allocate());  // and the whole pool when it is needed
  CHECK_EQ(pool.num_free(), 0);
  CHECK_EQ(pool.num_touched(), 800);
  std::ranges::sort(held);
  for (int i = 0; i < 800; ++i) CHECK_EQ(held[static_cast<size_t>(i)], i);
}

TEST(content_that_came_back_under_another_parent_takes_the_place) {
  BlockPool pool(2, 4);
  const int32_t a = pool.allocate(), b = pool.allocate();
  pool.publish(a, 7, 11, kTokens);
  pool.publish(b, 7, 12, kTokens);
  CHECK_EQ(pool.find(7, 12, kTokens), b);
  CHECK_EQ(pool.find(7, 11, kTokens), -1);
  CHECK_EQ(pool.serial(a), BlockPool::kRoot);
  pool.check_integrity(std::vector<int32_t>{1, 1});
}

TEST(misuse_is_caught) {
  BlockPool pool(2, 4);
  const int32_t a = pool.allocate();
  pool.release(a);
  CHECK_THROWS(Error, pool.release(a));
  CHECK_THROWS(Error, pool.share(a));
  CHECK_THROWS(Error, pool.check_integrity(std::vector<int32_t>{1, 0}));
}

TEST(chained_hashes_depend_on_order_and_prefix) {
  const int32_t swapped[] = {2, 1, 3, 4};
  CHECK(chain_hash(0, kTokens) != chain_hash(0, swapped));
  CHECK(chain_hash(0, kTokens) != chain_hash(1, kTokens));
}

TEST_MAIN()
