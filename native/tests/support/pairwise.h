// A short list of combinations in which every pair of values of every two factors occurs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <set>
#include <tuple>
#include <vector>

namespace deepinfer::testing {

using Combination = std::vector<int>;  // [num factors] index of the value

inline void visit_pairs(const Combination& c, const auto& visit) {
  for (size_t a = 0; a < c.size(); ++a)
    for (size_t b = a + 1; b < c.size(); ++b) visit(std::tuple{a, c[a], b, c[b]});
}

// Greedy: each next row is the best of many that start from a pair not seen yet. sizes: values per factor.
inline std::vector<Combination> pairwise_cover(const std::vector<int>& sizes) {
  std::set<std::tuple<size_t, int, size_t, int>> missing;
  for (size_t a = 0; a < sizes.size(); ++a)
    for (size_t b = a + 1; b < sizes.size(); ++b)
      for (int x = 0; x < sizes[a]; ++x)
        for (int y = 0; y < sizes[b]; ++y) missing.insert({a, x, b, y});
  std::mt19937 rng(1);
  std::vector<Combination> rows;
  while (!missing.empty()) {
    Combination best;
    int most = -1;
    for (int attempt = 0; attempt < 40; ++attempt) {
      Combination row;
      for (const int size : sizes) row.push_back(static_cast<int>(rng() % static_cast<uint32_t>(size)));
      const auto& [a, x, b, y] = *missing.begin();
      row[a] = x;
      row[b] = y;
      int num_new = 0;
      visit_pairs(row, [&](const auto& pair) { num_new += missing.contains(pair); });
      if (num_new <= most) continue;
      most = num_new;
      best = std::move(row);
    }
    visit_pairs(best, [&](const auto& pair) { missing.erase(pair); });
    rows.push_back(std::move(best));
  }
  return rows;
}

}  // namespace deepinfer::testing
