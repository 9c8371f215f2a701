// Any bytes as a row: the scanner's verdict must be the document parser's, and its spans must be values.
#include "base/json.h"
#include "deepinfer/row_scanner.h"
#include "fuzz.h"

using namespace deepinfer;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view line = fuzz::text_of(data, size);
  const RowScan scan = scan_row(line, 32);
  JsonValue value;
  JsonFault fault;
  const bool parses = parse_json(line, JsonLimits{.max_depth = 32}, value, fault);
  const JsonObject* object = parses ? value.get<JsonObject>() : nullptr;
  FUZZ_CHECK((scan.error == RowErrorCode::kNone) == (object != nullptr));
  FUZZ_CHECK((scan.error == RowErrorCode::kNotAnObject) == (parses && object == nullptr));
  if (object == nullptr) {
    FUZZ_CHECK(scan.fields.empty() && fuzz::is_message(scan.message));
    FUZZ_CHECK(scan.column >= 1 && scan.column <= size + 1);
    return 0;
  }
  FUZZ_CHECK(scan.column == 0 && scan.message.empty());
  FUZZ_CHECK(scan.fields.size() == object->size());
  size_t last = 0;
  for (size_t i = 0; i < scan.fields.size(); ++i) {
    const RowField& field = scan.fields[i];
    FUZZ_CHECK(field.key == (*object)[i].key && fuzz::is_utf8(field.key));
    FUZZ_CHECK(last < field.start && field.start < field.end && field.end < size);
    JsonValue part;
    FUZZ_CHECK(parse_json(line.substr(field.start, field.end - field.start), JsonLimits{}, part, fault));
    FUZZ_CHECK(part.data.index() == (*object)[i].value.data.index());
    last = field.end;
  }
  return 0;
}
