#include "python_matchers.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <string>
#include <utility>

#include "deepinfer/status.h"

namespace nb = nanobind;

namespace deepinfer::bindings {
namespace {

// A Python object that any thread may drop.
class Held {
 public:
  explicit Held(nb::object object) : object_(std::move(object)) {}
  ~Held() {
    if (!nb::is_alive()) {
      (void)object_.release();  // there is nobody left to count
      return;
    }
    const nb::gil_scoped_acquire gil;
    object_.reset();
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  const nb::object& operator*() const { return object_; }

 private:
  nb::object object_;
};

// Python's exceptions must not leave with the GIL given back: they hold objects.
template <typename Work>
auto in_python(const Work& work) {
  const nb::gil_scoped_acquire gil;
  try {
    return work();
  } catch (const nb::python_error& e) {
    throw Error(ErrorCode::kBadRequest, nb::str(e.value()).c_str());
  }
}

size_t num_words(size_t vocab_size) { return (vocab_size + 31) / 32; }

void copy_mask(const uint32_t* from, size_t num_own, std::span<uint32_t> mask) {
  std::ranges::fill(mask, 0);  // ids beyond the tokenizer's are never allowed
  std::copy_n(from, std::min(num_own, mask.size()), mask.begin());
}

class PythonGroup;

class PythonMatcher : public ConstraintMatcher {
 public:
  PythonMatcher(std::shared_ptr<PythonGroup> group, nb::object matcher)
      : group_(std::move(group)), matcher_(std::move(matcher)) {}

  bool fill_mask(std::span<uint32_t> mask) override;
  bool accept(int32_t token) override;
  int validate(std::span<const int32_t> tokens) override {
    return in_python([&] {
      nb::list ids;
      for (const int32_t token : tokens) {
        if (token < 0) break;
        ids.append(token);
      }
      return nb::cast<int>(method("validate_tokens")(ids));
    });
  }
  bool rollback(int num_tokens) override {
    return num_tokens >= 0 && in_python([&] { return nb::cast<bool>(method("rollback")(num_tokens)); });
  }
  bool done() override {
    return in_python(
        [&] { return nb::cast<bool>(method("is_stopped")()) && !nb::cast<bool>(method("is_error")()); });
  }
  bool is_accepting() override {
    return in_python([&] { return nb::cast<bool>(method("is_accepting")()); });
  }
  std::string error() const override {
    return in_python([&] {
      const auto text = nb::cast<std::string>(method("get_error")());
      return text.substr(0, text.find('\n'));
    });
  }
  const nb::object& object() const { return *matcher_; }

 private:
  nb::object method(const char* name) const { return (*matcher_).attr(name); }

  std::shared_ptr<PythonGroup> group_;
  Held matcher_;
};

class PythonGroup : public MatcherGroup {
 public:
  PythonGroup(nb::object engine, size_t vocab_size) : engine_(std::move(engine)), vocab_size_(vocab_size) {}

  void in_one_go(const std::function<void()>& work) override {
    in_python([&] { work(); });
  }

  void accept(std::span<MatcherCall> calls) override {
    in_python([&] {
      nb::list tokens;
      for (const MatcherCall& call : calls) tokens.append(call.token);
      take_answers((*engine_).attr("accept")(matchers_of(calls), tokens), calls);
    });
  }

  void fill_masks(std::span<MatcherCall> calls) override {
    in_python([&] {
      const size_t num_own = num_words(vocab_size_);
      std::vector<uint32_t> masks(calls.size() * num_own);  // filled without the GIL, so shared with nobody
      const auto address = reinterpret_cast<uintptr_t>(masks.data());
      take_answers((*engine_).attr("fill_masks")(matchers_of(calls), address, num_own * 4), calls);
      for (size_t i = 0; i < calls.size(); ++i) copy_mask(masks.data() + i * num_own, num_own, calls[i].mask);
    });
  }

 private:
  static nb::list matchers_of(std::span<const MatcherCall> calls) {
    nb::list matchers;
    for (const MatcherCall& call : calls)
      matchers.append(static_cast<PythonMatcher*>(call.matcher)->object());
    return matchers;
  }
  static void take_answers(const nb::object& answers, std::span<MatcherCall> calls) {
    const auto all = nb::cast<std::vector<bool>>(answers);
    DI_CHECK(all.size() == calls.size());
    for (size_t i = 0; i < calls.size(); ++i) calls[i].is_ok = all[i];
  }

  Held engine_;
  size_t vocab_size_;
};

bool PythonMatcher::fill_mask(std::span<uint32_t> mask) {
  MatcherCall call{this, -1, mask, false};
  group_->fill_masks({&call, 1});
  return call.is_ok;
}

bool PythonMatcher::accept(int32_t token) {
  MatcherCall call{this, token, {}, false};
  group_->accept({&call, 1});
  return call.is_ok;
}

class PythonTemplate : public ConstraintTemplate {
 public:
  PythonTemplate(std::shared_ptr<PythonGroup> group, nb::object matcher)
      : group_(std::move(group)), matcher_(std::move(matcher)) {}

  std::unique_ptr<ConstraintMatcher> clone() const override {
    return in_python(
        [&] { return std::make_unique<PythonMatcher>(group_, nb::object((*matcher_).attr("deep_copy")())); });
  }
  MatcherGroup* group() const override { return group_.get(); }

 private:
  std::shared_ptr<PythonGroup> group_;
  Held matcher_;
};

}  // namespace

std::shared_ptr<MatcherGroup> make_python_group(nb::object engine, size_t vocab_size) {
  return std::make_shared<PythonGroup>(std::move(engine), vocab_size);
}

std::shared_ptr<const ConstraintTemplate> make_python_template(std::shared_ptr<MatcherGroup> group,
                                                               const nb::callable& make_matcher) {
  return in_python([&] {
    return std::make_shared<const PythonTemplate>(std::static_pointer_cast<PythonGroup>(std::move(group)),
                                                  make_matcher());
  });
}

}  // namespace deepinfer::bindings
