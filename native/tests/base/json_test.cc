#include "base/json.h"

#include "testing.h"

using namespace deepinfer;

namespace {

JsonValue parsed(std::string_view text) {
  JsonValue value;
  JsonFault fault;
  CHECK(parse_json(text, JsonLimits{}, value, fault));
  return value;
}

std::string fault_of(std::string_view text, const JsonLimits& limits = {}) {
  JsonValue value;
  JsonFault fault;
  CHECK(!parse_json(text, limits, value, fault));
  return std::to_string(fault.offset) + ": " + fault.message;
}

}  // namespace

TEST(numbers_keep_their_kind) {
  const JsonValue root =
      parsed(R"([1, -9223372036854775808, 18446744073709551615, 18446744073709551616, 2.5, 1e-400])");
  const JsonArray& numbers = *root.get<JsonArray>();
  CHECK(*numbers[0].get<int64_t>() == 1);
  CHECK(*numbers[1].get<int64_t>() == INT64_MIN);
  CHECK(*numbers[2].get<uint64_t>() == UINT64_MAX);
  CHECK(*numbers[3].get<double>() == 18446744073709551616.0);
  CHECK(*numbers[4].get<double>() == 2.5);
  CHECK(*numbers[5].get<double>() == 0.0);
}

TEST(strings_and_keys_are_decoded) {
  const JsonValue root = parsed(R"({"\u00e9\n": "\ud83d\udd25\ud800", "k": {"n": null, "t": true}})");
  CHECK(*root.find("\xC3\xA9\n")->get<std::string>() == "\xF0\x9F\x94\xA5\xEF\xBF\xBD");
  CHECK(root.find("k")->find("n")->is_null());
  CHECK(*root.find("k")->find("t")->get<bool>());
  CHECK(root.find("missing") == nullptr);
}

TEST(faults_name_the_place) {
  CHECK_EQ(fault_of("[1, 2"), "5: expected ',' or ']' after a value, found the end");
  CHECK_EQ(fault_of(R"({"a":1,"a":2})"), "7: the key \"a\" appears twice in one object");
  CHECK_EQ(fault_of("[[[]]]", {.max_depth = 2}), "2: arrays and objects are nested deeper than 2");
  CHECK_EQ(fault_of("[0,0,0,0]", {.max_values = 3}), "6: there are more values than are taken");
  CHECK_EQ(fault_of("\xEF\xBB\xBF{}"), "0: expected a value, found '\xEF\xBB\xBF'");
}

TEST_MAIN()
