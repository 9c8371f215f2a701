#include "deepinfer/id_table.h"

#include <map>
#include <random>
#include <string>

#include "deepinfer/status.h"
#include "rows/siphash.h"
#include "testing.h"

using deepinfer::IdTable;

TEST(siphash_matches_the_published_vectors) {
  // Key 00 01 .. 0f, message 00 01 .. (n-1); outputs from the reference implementation's vectors.
  const uint64_t key[2] = {0x0706050403020100ull, 0x0f0e0d0c0b0a0908ull};
  CHECK(deepinfer::siphash128(key, "").lo == 0xe6a825ba047f81a3ull);
  CHECK(deepinfer::siphash128(key, "").hi == 0x930255c71472f66dull);
  const std::string one(1, '\0');
  CHECK(deepinfer::siphash128(key, one).lo == 0x44af996bd8c187daull);
  CHECK(deepinfer::siphash128(key, one).hi == 0x45fc229b11597634ull);
}

TEST(insert_returns_the_first_value) {
  IdTable table;
  CHECK_EQ(table.insert("a", 7), -1);
  CHECK_EQ(table.insert("b", 0), -1);
  CHECK_EQ(table.insert("a", 9), 7);
  CHECK_EQ(table.insert("a", 9), 7);
  CHECK_EQ(table.insert("b", 9), 0);
  CHECK_EQ(table.insert("", IdTable::kMaxValue), -1);
  CHECK_EQ(table.insert("", 1), IdTable::kMaxValue);
  CHECK_EQ(table.insert(std::string_view("\0", 1), 1), -1);
  CHECK_THROWS(deepinfer::Error, table.insert("c", IdTable::kMaxValue + 1));
  CHECK_THROWS(deepinfer::Error, table.insert("c", -1));
}

TEST(memory_stays_under_24_bytes_a_key) {
  IdTable table;
  for (int64_t i = 0; i < 700000; ++i) {
    CHECK_EQ(table.insert("row-" + std::to_string(i), i), -1);
    if (i >= 100000 && i % 997 == 0) CHECK(table.memory_bytes() <= static_cast<size_t>(24 * (i + 1)));
  }
  CHECK_EQ(table.spilled_bytes(), 0u);
  for (int64_t i = 0; i < 700000; i += 13) CHECK_EQ(table.insert("row-" + std::to_string(i), 0), i);
}

TEST(spilled_keys_are_still_found) {
  constexpr size_t kLimit = 256 << 10;
  IdTable table(kLimit);
  constexpr int64_t kKeys = 200000;  // about 18 runs: two levels of merged files
  for (int64_t i = 0; i < kKeys; ++i) {
    CHECK_EQ(table.insert("row-" + std::to_string(i), i), -1);
    CHECK(table.memory_bytes() <= kLimit);
  }
  CHECK(table.spilled_bytes() > 3 << 20);
  for (int64_t i = 0; i < kKeys; ++i) CHECK_EQ(table.insert("row-" + std::to_string(i), 0), i);
  CHECK_EQ(table.insert("row--1", 5), -1);
}

TEST(counts_agree_with_a_map_across_spills) {
  IdTable table(64 << 10);
  std::map<std::string, int64_t> wanted;
  std::mt19937_64 random(1);
  for (int i = 0; i < 60000; ++i) {
    const std::string key = std::to_string(random() % 20000);
    CHECK_EQ(table.increment(key), wanted[key]++);
  }
  CHECK(table.spilled_bytes() > 0);
}

TEST(a_spill_folder_that_fails_is_a_resource_error) {
  IdTable table(64 << 10, "/nonexistent/folder");
  int64_t i = 0;
  try {
    for (; i < 100000; ++i) table.insert(std::to_string(i), i);
  } catch (const deepinfer::Error& e) {
    CHECK(e.code() == deepinfer::ErrorCode::kResource);
    CHECK(std::string(e.what()).find("/nonexistent/folder") != std::string::npos);
    for (int64_t k = 0; k < i; ++k) CHECK_EQ(table.insert(std::to_string(k), 0), k);  // nothing was lost
    return;
  }
  CHECK(false);
}

TEST_MAIN()
