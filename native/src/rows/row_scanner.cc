#include "deepinfer/row_scanner.h"

#include "base/json_walk.h"
#include "deepinfer/status.h"

namespace deepinfer {
namespace {

constexpr size_t kMaxFields = 10'000;  // each costs its reader much more than its bytes

// Keeps the spans of the row's own values and ignores everything deeper.
struct SpanCollector {
  std::vector<RowField>& fields;
  bool is_object = false;
  int num_open = 0;

  bool wants_more() const { return fields.size() <= kMaxFields; }
  void key(const JsonString& name) {
    if (num_open != 1) return;
    RowField& field = fields.emplace_back();
    if (name.has_escapes) {
      decode_json_string(name.raw, field.key);
    } else {
      field.key = name.raw;
    }
  }
  void value_begins(int depth, size_t offset) {
    if (depth == 1 && is_object) fields.back().start = offset;
  }
  void value_ended(int depth, size_t offset) {
    if (depth == 1 && is_object) fields.back().end = offset;
  }
  void begin_object() {
    if (num_open++ == 0) is_object = true;
  }
  void end_object() { --num_open; }
  void begin_array() { ++num_open; }
  void end_array() { --num_open; }
  void scalar_string(const JsonString&) {}
  void scalar_number(const JsonNumber&) {}
  void scalar_bool(bool) {}
  void scalar_null() {}
};

RowErrorCode row_code(JsonFaultKind kind) {
  switch (kind) {
    case JsonFaultKind::kNone: return RowErrorCode::kNone;
    case JsonFaultKind::kSyntax: return RowErrorCode::kBadJson;
    case JsonFaultKind::kEncoding: return RowErrorCode::kBadEncoding;
    case JsonFaultKind::kTooDeep: return RowErrorCode::kTooDeep;
    case JsonFaultKind::kTooBig: return RowErrorCode::kTooLarge;
  }
  return RowErrorCode::kBadJson;
}

}  // namespace

const char* row_error_name(RowErrorCode code) {
  switch (code) {
    case RowErrorCode::kNone: return "";
    case RowErrorCode::kBadJson: return "bad_json";
    case RowErrorCode::kBadEncoding: return "bad_encoding";
    case RowErrorCode::kNotAnObject: return "not_an_object";
    case RowErrorCode::kTooDeep: return "too_deep";
    case RowErrorCode::kTooLarge: return "row_too_large";
  }
  return "";
}

RowScan scan_row(std::string_view line, int max_depth) {
  RowScan scan;
  SpanCollector collector{scan.fields};
  JsonWalk<SpanCollector> walk(line, max_depth, collector);
  if (!walk.run()) {
    const JsonFault& fault = walk.lexer().fault();
    scan.error = row_code(fault.kind);
    scan.message =
        scan.error == RowErrorCode::kTooLarge ? str_cat("more than ", kMaxFields, " keys") : fault.message;
    scan.column = fault.offset + 1;
  } else if (!collector.is_object) {
    scan.error = RowErrorCode::kNotAnObject;
    scan.message = "a row must be a JSON object";
    scan.column = 1;
  }
  if (scan.error != RowErrorCode::kNone) scan.fields.clear();
  const size_t lone = walk.lexer().first_lone_surrogate();
  if (lone != JsonLexer::kNone) scan.lone_surrogate_column = lone + 1;
  return scan;
}

}  // namespace deepinfer
