#include "deepinfer/row_scanner.h"

#include "deepinfer/status.h"
#include "testing.h"

using deepinfer::row_error_name;
using deepinfer::RowScan;
using deepinfer::scan_row;

namespace {

std::string verdict(std::string_view line, int max_depth = 128) {
  const RowScan scan = scan_row(line, max_depth);
  if (scan.error == deepinfer::RowErrorCode::kNone) return "ok";
  CHECK(!scan.message.empty());
  CHECK(scan.column >= 1 && scan.column <= line.size() + 1);
  CHECK(scan.fields.empty());
  return std::string(row_error_name(scan.error)) + ":" + std::to_string(scan.column);
}

std::string spans(std::string_view line) {
  std::string out;
  for (const auto& field : scan_row(line).fields) {
    out += field.key + "=" + std::string(line.substr(field.start, field.end - field.start)) + ";";
  }
  return out;
}

std::string nested(int depth) {
  std::string line = "{\"a\":";
  line.append(static_cast<size_t>(depth - 1), '[');
  line += "1";
  line.append(static_cast<size_t>(depth - 1), ']');
  return line + "}";
}

}  // namespace

TEST(spans_are_exact_bytes) {
  CHECK_EQ(spans(R"( {"id" : 12345678901234567890 , "m":{"a": [1, 2]},"s":"a\"b","t":true,"n":null} )"),
           R"(id=12345678901234567890;m={"a": [1, 2]};s="a\"b";t=true;n=null;)");
  CHECK_EQ(spans("{\"\xC3\xA4\\u00e4\\n\":1.50e+1}\r"), "\xC3\xA4\xC3\xA4\n=1.50e+1;");
  CHECK_EQ(spans("{}"), "");
}

TEST(what_is_not_json_is_refused_with_its_column) {
  CHECK_EQ(verdict(""), "bad_json:1");
  CHECK_EQ(verdict("  "), "bad_json:3");
  CHECK_EQ(verdict("hello"), "bad_json:1");
  CHECK_EQ(verdict("{\"a\":1"), "bad_json:7");
  CHECK_EQ(verdict("{\"a\":1,}"), "bad_json:8");
  CHECK_EQ(verdict("{\"a\" 1}"), "bad_json:6");
  CHECK_EQ(verdict("{a:1}"), "bad_json:2");
  CHECK_EQ(verdict("{'a':1}"), "bad_json:2");
  CHECK_EQ(verdict("{\"a\":1} x"), "bad_json:9");
  CHECK_EQ(verdict("{\"a\":1}{\"a\":1}"), "bad_json:8");
  CHECK_EQ(verdict("{\"a\":[1,]}"), "bad_json:9");
  CHECK_EQ(verdict("{\"a\":[1}"), "bad_json:8");
  CHECK_EQ(verdict("{\"a\":\"b"), "bad_json:6");
  CHECK_EQ(verdict("{\"a\":\"\t\"}"), "bad_json:7");
  CHECK_EQ(verdict("{\"a\":\"\\x\"}"), "bad_json:8");
  CHECK_EQ(verdict("{\"a\":\"\\u12g4\"}"), "bad_json:7");
  CHECK_EQ(verdict("{\"a\":\"\\"), "bad_json:7");
  CHECK_EQ(verdict(std::string_view("{\"a\":1}\0", 8)), "bad_json:8");
  CHECK_EQ(verdict("{\"a\":tru}"), "bad_json:6");
  CHECK_EQ(verdict("{\"a\":nul"), "bad_json:6");
}

TEST(only_an_object_is_a_row) {
  for (const char* line : {"1", "\"a\"", "[{\"id\":1}]", "null", " true "})
    CHECK_EQ(verdict(line), "not_an_object:1");
  CHECK_EQ(verdict("[1"), "bad_json:3");
}

TEST(numbers_follow_the_grammar_and_fit_a_double) {
  for (const char* good : {"0", "-0", "10", "-1.5", "1e5", "1E-400", "0e999999999999",
                           "1.7976931348623157e308", "0.00001e312", "123456789012345678901234567890"}) {
    CHECK_EQ(verdict(std::string("{\"a\":") + good + "}"), "ok");
  }
  for (const char* bad :
       {"1e400", "-1e309", "1.8e308", "NaN", "Infinity", "1e99999999999999999999", "01", "10000e305"}) {
    CHECK_EQ(verdict(std::string("{\"a\":") + bad + "}").substr(0, 10), "bad_json:6");
  }
  for (const char* bad : {"-Infinity", "1.", ".5", "+1", "-", "1e", "1e+", "0x10", "1_0", "--1"}) {
    CHECK_EQ(verdict(std::string("{\"a\":") + bad + "}").substr(0, 9), "bad_json:");
  }
  CHECK_EQ(verdict("{\"a\":" + std::string(309, '9') + "}"), "bad_json:6");
  CHECK_EQ(verdict("{\"a\":" + std::string(308, '9') + "}"), "ok");
  CHECK_EQ(verdict("{\"a\":0." + std::string(500, '0') + "1e800}"), "ok");
}

TEST(bytes_must_be_utf8) {
  CHECK_EQ(verdict("{\"a\":\"\xC3\xA4\xE2\x82\xAC\xF0\x9F\x94\xA5\"}"), "ok");
  CHECK_EQ(verdict("{\"a\":\"x\xC3\"}"), "bad_encoding:8");
  CHECK_EQ(verdict("{\"a\":\"\xED\xA0\x80\"}"), "bad_encoding:7");  // a surrogate
  CHECK_EQ(verdict("{\"a\":\"\xC0\xAF\"}"), "bad_encoding:7");      // overlong
  CHECK_EQ(verdict("{\"a\":\"\xF4\x90\x80\x80\"}"), "bad_encoding:7");
  CHECK_EQ(verdict("{\"a\":\"\xF0\x9F\x94"), "bad_encoding:7");
  CHECK_EQ(verdict("{\"\xFF\":1}"), "bad_encoding:3");
  CHECK_EQ(verdict("{\"a\":\xFF}"), "bad_encoding:6");
  CHECK_EQ(verdict("{\"a\":\xC3\xA4}"), "bad_json:6");
}

TEST(equal_keys_are_found_at_any_depth) {
  CHECK_EQ(verdict(R"({"a":1,"a":1})"), "bad_json:8");
  CHECK_EQ(verdict(R"({"a":1,"\u0061":1})"), "bad_json:8");
  CHECK_EQ(verdict(R"({"a":{"b":[{"c":1,"d":2,"c":3}]}})"), "bad_json:25");
  CHECK_EQ(verdict(R"({"a":{"a":{"a":1}},"b":{"a":1}})"), "ok");
  CHECK_EQ(verdict(R"({"a":{"b":1},"c":{"b":1},"c":2})"), "bad_json:26");
  CHECK_EQ(scan_row(R"({"x":1,"a\nb":1,"a\u000ab":1,"x":1})").message,
           R"(the key "a\u000ab" appears twice in one object)");
}

TEST(equal_keys_among_many) {
  std::string line = "{\"metadata\":{";
  for (int i = 0; i < 100000; ++i) line += "\"key" + std::to_string(i) + "\":0,";
  CHECK_EQ(verdict(line + "\"z\":0}}"), "ok");
  CHECK_EQ(verdict(line + "\"key77\":0}}"), "bad_json:" + std::to_string(line.size() + 1));
  CHECK_EQ(verdict(line + "\"\\u006bey77\":0,\"key3\":1}}"), "bad_json:" + std::to_string(line.size() + 1));
}

TEST(depth_is_limited) {
  CHECK_EQ(verdict(nested(128)), "ok");
  CHECK_EQ(verdict(nested(129)), "too_deep:133");
  CHECK_EQ(verdict(nested(3), 2), "too_deep:7");
  CHECK_EQ(verdict("{}", 0), "too_deep:1");
  CHECK_EQ(verdict(std::string(1000000, '[')), "too_deep:129");
  const auto wide = [](int num_keys) {
    std::string row = "{\"k\":0";
    for (int i = 1; i < num_keys; ++i) row += deepinfer::str_cat(",\"k", i, "\":{}");
    return row + "}";
  };
  CHECK_EQ(verdict(wide(10000)), "ok");
  CHECK_EQ(verdict(wide(10001)).substr(0, 14), "row_too_large:");
  CHECK_EQ(verdict("{\"k\":" + wide(20000) + "}"), "ok");  // the keys of values are the decoder's affair
}

TEST(lone_surrogates_are_seen_and_pairs_are_not) {
  CHECK_EQ(scan_row(R"({"a":"\ud83d\udd25"})").lone_surrogate_column, 0u);
  CHECK_EQ(scan_row(R"({"a":"x\ud83d half"})").lone_surrogate_column, 8u);
  CHECK_EQ(scan_row(R"({"a":"\udd25\ud83d"})").lone_surrogate_column, 7u);
  CHECK_EQ(scan_row(R"({"a":"\ud83d\u0041"})").lone_surrogate_column, 7u);
  const RowScan key = scan_row(R"({"a\ud800":1})");
  CHECK_EQ(key.fields.at(0).key, "a\xEF\xBF\xBD");
  CHECK_EQ(key.lone_surrogate_column, 4u);
}

TEST_MAIN()
