// One pass over one JSONL line: is it strict JSON, and where does every top-level value lie?
//
// Decoders keep the last of two equal keys, accept NaN and read 1e400 as infinity; rows come from
// strangers and must be refused for all three. The exact bytes of a value are kept so that an id or
// metadata can be echoed as it was written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace deepinfer {

enum class RowErrorCode : uint8_t { kNone, kBadJson, kBadEncoding, kNotAnObject, kTooDeep, kTooLarge };
const char* row_error_name(RowErrorCode code);  // "bad_json", ...; "" for kNone

struct RowField {
  std::string key;   // decoded; a lone surrogate escape becomes U+FFFD
  size_t start = 0;  // the value's bytes are line[start, end)
  size_t end = 0;
};

struct RowScan {
  RowErrorCode error = RowErrorCode::kNone;
  std::string message;           // one clause without a full stop; empty when there is no error
  size_t column = 0;             // 1-based byte where the error was seen; 0 = none
  std::vector<RowField> fields;  // in file order; empty when there is an error
  size_t lone_surrogate_column =
      0;  // 1-based byte of the first \ud800-\udfff escape without its half; 0 = none
};

// `line`: one row without its newline (a carriage return at its end is white space). A byte order mark is
// the caller's. max_depth: arrays and objects inside each other, the row itself being the first.
//
// Refused: everything RFC 8259 does not allow; bytes that are not UTF-8; numbers beyond the range of a
// double; equal keys in one object, at any depth; more than 10,000 keys of the row's own. Time is O(n log n)
// in the worst case (one object whose keys all differ), O(n) on rows as they are.
RowScan scan_row(std::string_view line, int max_depth = 128);

}  // namespace deepinfer
