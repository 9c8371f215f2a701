// The engine, its requests and completions, and the executor for tests.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "bind.h"
#include "bind_constraint.h"
#include "deepinfer/engine.h"
#include "deepinfer/status.h"
#include "deepinfer/threads.h"
#include "executor/fake_executor.h"
#include "executor/faulty_executor.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace deepinfer::bindings {
namespace {

const char* finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop: return "stop";
    case FinishReason::kLength: return "length";
    case FinishReason::kContext: return "context";
    case FinishReason::kError: return "error";
    case FinishReason::kAborted: return "aborted";
  }
  return "error";
}

const char* constraint_state_name(ConstraintState state) {
  switch (state) {
    case ConstraintState::kNone: return "none";
    case ConstraintState::kNotStarted: return "not_started";
    case ConstraintState::kIncomplete: return "incomplete";
    case ConstraintState::kComplete: return "complete";
  }
  return "none";
}

// A Python callable that the engine's thread calls and may be the last to drop.
class LogitsCallback {
 public:
  explicit LogitsCallback(nb::object fn) : fn_(std::make_shared<Held>(std::move(fn))) {}

  // The callback gets (position, memoryview of float32): a copy, because the row's memory is reused.
  void operator()(int32_t position, const float* logits, int32_t vocab_size) const {
    const nb::gil_scoped_acquire gil;
    try {
      const nb::bytes row(reinterpret_cast<const char*>(logits),
                          static_cast<size_t>(vocab_size) * sizeof(float));
      const nb::object view = nb::steal(PyMemoryView_FromObject(row.ptr()));
      fn_->object(position, view.attr("cast")("f"));
    } catch (const nb::python_error& e) {
      throw Error(ErrorCode::kBadRequest, e.what());
    }
  }

  // For the cycle collector; null while the engine also holds the callback, which keeps it alive.
  PyObject* collectable() const { return fn_.use_count() == 1 ? fn_->object.ptr() : nullptr; }

 private:
  struct Held {
    explicit Held(nb::object fn) : object(std::move(fn)) {}
    ~Held() {
      const nb::gil_scoped_acquire gil;
      object.reset();
    }
    nb::object object;
  };
  std::shared_ptr<Held> fn_;
};

Request make_request(uint64_t id, std::vector<int32_t> prompt, SamplingParams sampling, int32_t num_samples,
                     uint64_t seed, int32_t prompt_logprobs, int32_t score_begin, int32_t score_end,
                     nb::object on_logits, bool token_times, const Template* constraint,
                     std::vector<int32_t> constraint_after) {
  Request request;
  request.id = id;
  request.prompt = std::move(prompt);
  request.sampling = std::move(sampling);
  request.num_samples = num_samples;
  request.seed = seed;
  request.prompt_logprobs = prompt_logprobs;
  request.score_begin = score_begin;
  request.score_end = score_end;
  request.wants_token_times = token_times;
  if (constraint != nullptr) request.constraint = constraint->compiled;
  request.constraint_after = std::move(constraint_after);
  if (!on_logits.is_none()) request.on_logits = LogitsCallback(std::move(on_logits));
  return request;
}

SamplingParams make_sampling(float temperature, int32_t top_k, float top_p, float min_p,
                             float repetition_penalty, float presence_penalty, float frequency_penalty,
                             std::vector<std::pair<int32_t, float>> logit_bias, std::vector<std::string> stop,
                             std::vector<int32_t> stop_token_ids, bool include_stop, int32_t min_tokens,
                             int32_t max_tokens, bool ignore_eos, int32_t top_logprobs) {
  return {temperature,
          top_k,
          top_p,
          min_p,
          repetition_penalty,
          presence_penalty,
          frequency_penalty,
          std::move(logit_bias),
          std::move(stop),
          std::move(stop_token_ids),
          include_stop,
          min_tokens,
          max_tokens,
          ignore_eos,
          top_logprobs};
}

// A callback may refer to its own request: without these such a pair would never be freed.
int traverse_request(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  const auto* callback = nb::inst_ptr<Request>(self)->on_logits.target<LogitsCallback>();
  PyObject* const held = callback != nullptr ? callback->collectable() : nullptr;
  Py_VISIT(held);
  return 0;
}
int clear_request(PyObject* self) {
  nb::inst_ptr<Request>(self)->on_logits = nullptr;
  return 0;
}
PyType_Slot request_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse_request)},
                               {Py_tp_clear, reinterpret_cast<void*>(clear_request)},
                               {0, nullptr}};

void bind_requests(nb::module_& m) {
  const SamplingParams defaults;
  nb::class_<SamplingParams>(m, "SamplingParams")
      .def(nb::new_(&make_sampling), nb::kw_only(), "temperature"_a = defaults.temperature,
           "top_k"_a = defaults.top_k, "top_p"_a = defaults.top_p, "min_p"_a = defaults.min_p,
           "repetition_penalty"_a = defaults.repetition_penalty,
           "presence_penalty"_a = defaults.presence_penalty,
           "frequency_penalty"_a = defaults.frequency_penalty, "logit_bias"_a = nb::list(),
           "stop"_a = nb::list(), "stop_token_ids"_a = nb::list(), "include_stop"_a = defaults.include_stop,
           "min_tokens"_a = defaults.min_tokens, "max_tokens"_a = defaults.max_tokens,
           "ignore_eos"_a = defaults.ignore_eos, "top_logprobs"_a = defaults.top_logprobs)
      .def_ro("temperature", &SamplingParams::temperature)
      .def_ro("top_k", &SamplingParams::top_k)
      .def_ro("top_p", &SamplingParams::top_p)
      .def_ro("min_p", &SamplingParams::min_p)
      .def_ro("repetition_penalty", &SamplingParams::repetition_penalty)
      .def_ro("presence_penalty", &SamplingParams::presence_penalty)
      .def_ro("frequency_penalty", &SamplingParams::frequency_penalty)
      .def_ro("logit_bias", &SamplingParams::logit_bias)
      .def_ro("stop", &SamplingParams::stop)
      .def_ro("stop_token_ids", &SamplingParams::stop_token_ids)
      .def_ro("include_stop", &SamplingParams::include_stop)
      .def_ro("min_tokens", &SamplingParams::min_tokens)
      .def_ro("max_tokens", &SamplingParams::max_tokens)
      .def_ro("ignore_eos", &SamplingParams::ignore_eos)
      .def_ro("top_logprobs", &SamplingParams::top_logprobs);

  nb::class_<Request>(m, "Request", nb::type_slots(request_slots))
      .def(nb::new_(&make_request), "id"_a, "prompt"_a, "sampling"_a, nb::kw_only(), "num_samples"_a = 1,
           "seed"_a = 0, "prompt_logprobs"_a = -1, "score_begin"_a = 0, "score_end"_a = 0,
           "on_logits"_a.none() = nb::none(), "token_times"_a = false, "constraint"_a.none() = nb::none(),
           "constraint_after"_a = nb::list())
      .def_ro("id", &Request::id)
      .def_ro("prompt", &Request::prompt)
      .def_ro("sampling", &Request::sampling)
      .def_ro("num_samples", &Request::num_samples)
      .def_ro("seed", &Request::seed)
      .def_ro("prompt_logprobs", &Request::prompt_logprobs)
      .def_ro("score_begin", &Request::score_begin)
      .def_ro("score_end", &Request::score_end)
      .def_ro("token_times", &Request::wants_token_times)
      .def_ro("constraint_after", &Request::constraint_after);
}

void bind_completions(nb::module_& m) {
  nb::class_<TokenLogprobs>(m, "TokenLogprobs")
      .def_ro("token", &TokenLogprobs::token)
      .def_ro("logprob", &TokenLogprobs::logprob)
      .def_ro("rank", &TokenLogprobs::rank)
      .def_ro("top", &TokenLogprobs::top);

  nb::class_<SampleResult>(m, "SampleResult")
      .def_ro("tokens", &SampleResult::tokens)
      .def_ro("text", &SampleResult::text)
      .def_prop_ro("finish_reason", [](const SampleResult& s) { return finish_reason_name(s.finish_reason); })
      .def_ro("stop_string", &SampleResult::stop_string)
      .def_ro("stop_token", &SampleResult::stop_token)
      .def_ro("token_times", &SampleResult::token_times)
      .def_prop_ro("constraint_state",
                   [](const SampleResult& s) { return constraint_state_name(s.constraint_state); })
      .def_prop_ro("logprobs", [](const SampleResult& s) { return std::vector<TokenLogprobs>(s.logprobs); });

  nb::class_<Completion>(m, "Completion")
      .def_ro("id", &Completion::id)
      .def_prop_ro("samples", [](const Completion& c) { return std::vector<SampleResult>(c.samples); })
      .def_prop_ro("prompt_logprobs",
                   [](const Completion& c) { return std::vector<TokenLogprobs>(c.prompt_logprobs); })
      .def_ro("error", &Completion::error)
      .def_ro("error_retryable", &Completion::error_retryable)
      .def_ro("num_prompt_tokens", &Completion::num_prompt_tokens)
      .def_ro("num_cached_tokens", &Completion::num_cached_tokens)
      .def_ro("num_preemptions", &Completion::num_preemptions)
      .def_ro("submit_time", &Completion::submit_time)
      .def_ro("queue_seconds", &Completion::queue_seconds)
      .def_ro("first_token_seconds", &Completion::first_token_seconds)
      .def_ro("total_seconds", &Completion::total_seconds);
}

const char* kind_name(CacheKind kind) { return kind == CacheKind::kPaged ? "paged" : "sequence"; }

using GroupTuple = std::tuple<std::string, std::string, int32_t>;  // name, kind, tokens per block

std::unique_ptr<FakeExecutor> make_fake(int32_t vocab_size, int32_t max_positions, uint64_t seed,
                                        int32_t block_tokens, const std::vector<GroupTuple>& groups,
                                        float logit_scale, std::vector<int32_t> eos_token_ids, float eos_bias,
                                        double seconds_per_token, int64_t fail_at_step,
                                        int64_t num_failing_steps, int32_t nan_token) {
  FakeExecutorConfig config;
  config.vocab_size = vocab_size;
  config.max_positions = max_positions;
  config.seed = seed;
  config.block_tokens = block_tokens;
  for (const auto& [name, kind, tokens] : groups) {
    if (kind != "paged" && kind != "sequence") throw nb::value_error("a group's kind is paged or sequence");
    config.groups.push_back({name, kind == "paged" ? CacheKind::kPaged : CacheKind::kSequence, tokens, 0});
  }
  config.logit_scale = logit_scale;
  config.eos_token_ids = std::move(eos_token_ids);
  config.eos_bias = eos_bias;
  config.seconds_per_token = seconds_per_token;
  config.fail_at_step = fail_at_step;
  config.num_failing_steps = num_failing_steps;
  config.nan_token = nan_token;
  return std::make_unique<FakeExecutor>(std::move(config));
}

std::unique_ptr<FaultyExecutor> make_faulty(Executor& inner, uint64_t seed, double throw_rate,
                                            int32_t poison_token, double nan_rate, double copy_rate,
                                            double slow_rate, double slow_seconds, int64_t hang_at_step,
                                            double hang_seconds) {
  FaultConfig config;
  config.seed = seed;
  config.throw_rate = throw_rate;
  config.poison_token = poison_token;
  config.nan_rate = nan_rate;
  config.copy_rate = copy_rate;
  config.slow_rate = slow_rate;
  config.slow_seconds = slow_seconds;
  config.hang_at_step = hang_at_step;
  config.hang_seconds = hang_seconds;
  return std::make_unique<FaultyExecutor>(inner, config);
}

void bind_executors(nb::module_& m) {
  nb::class_<ThreadPool>(m, "ThreadPool")
      .def(nb::init<int>(), "num_threads"_a)
      .def_prop_ro("num_threads", &ThreadPool::num_threads)
      .def_prop_ro("num_calls", &ThreadPool::num_calls);

  nb::class_<CacheGroupSpec>(m, "CacheGroupSpec")
      .def_ro("name", &CacheGroupSpec::name)
      .def_prop_ro("kind", [](const CacheGroupSpec& g) { return kind_name(g.kind); })
      .def_ro("block_tokens", &CacheGroupSpec::block_tokens)
      .def_ro("block_bytes", &CacheGroupSpec::block_bytes);

  nb::class_<Executor>(m, "Executor")
      .def_prop_ro("vocab_size", [](const Executor& e) { return e.info().vocab_size; })
      .def_prop_ro("max_positions", [](const Executor& e) { return e.info().max_positions; })
      .def_prop_ro("cache_groups", [](const Executor& e) { return e.cache_groups(); });

  const FakeExecutorConfig defaults;
  nb::class_<FakeExecutor, Executor>(m, "FakeExecutor")
      .def(nb::new_(&make_fake), "vocab_size"_a = defaults.vocab_size,
           "max_positions"_a = defaults.max_positions, "seed"_a = defaults.seed,
           "block_tokens"_a = defaults.block_tokens, nb::kw_only(), "groups"_a = nb::list(),
           "logit_scale"_a = defaults.logit_scale, "eos_token_ids"_a = nb::list(),
           "eos_bias"_a = defaults.eos_bias, "seconds_per_token"_a = defaults.seconds_per_token,
           "fail_at_step"_a = defaults.fail_at_step, "num_failing_steps"_a = defaults.num_failing_steps,
           "nan_token"_a = defaults.nan_token);

  const FaultConfig no_faults;
  nb::class_<FaultyExecutor, Executor>(m, "FaultyExecutor")
      .def(nb::new_(&make_faulty), nb::keep_alive<0, 2>(), "inner"_a, nb::kw_only(),
           "seed"_a = no_faults.seed, "throw_rate"_a = no_faults.throw_rate,
           "poison_token"_a = no_faults.poison_token, "nan_rate"_a = no_faults.nan_rate,
           "copy_rate"_a = no_faults.copy_rate, "slow_rate"_a = no_faults.slow_rate,
           "slow_seconds"_a = no_faults.slow_seconds, "hang_at_step"_a = no_faults.hang_at_step,
           "hang_seconds"_a = no_faults.hang_seconds);
}

// The loop thread may need the GIL for a callback while the engine waits for it to end.
class PyEngine {
 public:
  PyEngine(Executor& executor, ThreadPool& pool, std::shared_ptr<TokenTable> tokens, EngineConfig config)
      : engine_(std::make_unique<Engine>(executor, pool, std::move(tokens), std::move(config))) {
    live_.insert(this);
  }
  ~PyEngine() {
    live_.erase(this);
    const nb::gil_scoped_release release;
    engine_.reset();
  }
  PyEngine(const PyEngine&) = delete;
  PyEngine& operator=(const PyEngine&) = delete;

  bool try_submit(const Request& request) {
    Request copy = request;
    const nb::gil_scoped_release release;
    return engine_->try_submit(copy);
  }
  std::vector<Completion> poll(int32_t max, double timeout_s) {
    const nb::gil_scoped_release release;
    return engine_->poll(max, timeout_s);
  }
  void stop() {
    const nb::gil_scoped_release release;
    engine_->stop();
  }
  bool try_stop(double timeout_s) {
    const nb::gil_scoped_release release;
    return engine_->try_stop(timeout_s);
  }
  std::string describe() const {
    const nb::gil_scoped_release release;
    return engine_->describe();
  }
  void check_integrity() const {
    const nb::gil_scoped_release release;
    engine_->check_integrity();
  }
  Engine& operator*() { return *engine_; }
  const Engine& operator*() const { return *engine_; }

  // An engine that still runs when the interpreter ends would call into nothing.
  static void stop_all() {
    for (PyEngine* engine : std::set<PyEngine*>(live_)) engine->try_stop(kExitSeconds);
  }

 private:
  static constexpr double kExitSeconds = 1;  // for the step in progress
  static inline std::set<PyEngine*> live_;   // guarded by the GIL

  std::unique_ptr<Engine> engine_;
};

nb::dict stats_dict(const PyEngine& engine) {
  const EngineStats s = (*engine).stats();
  nb::dict d;
  d["num_steps"] = s.num_steps;
  d["num_prompt_tokens"] = s.num_prompt_tokens;
  d["num_cached_tokens"] = s.num_cached_tokens;
  d["num_generated_tokens"] = s.num_generated_tokens;
  d["num_forced_tokens"] = s.num_forced_tokens;
  d["num_masks_spared"] = s.num_masks_spared;
  d["num_preemptions"] = s.num_preemptions;
  d["num_failed_steps"] = s.num_failed_steps;
  d["num_running"] = s.num_running;
  d["num_waiting"] = s.num_waiting;
  d["num_blocks_used"] = s.num_blocks_used;
  d["num_blocks_total"] = s.num_blocks_total;
  d["busy_seconds"] = s.busy_seconds;
  d["host_seconds"] = s.host_seconds;
  d["constraint_seconds"] = s.constraint_seconds;
  return d;
}

void init_engine(PyEngine* self, Executor& executor, ThreadPool& pool, std::shared_ptr<TokenTable> tokens,
                 std::vector<int32_t> num_blocks, int32_t max_num_seqs, int32_t max_step_tokens,
                 int32_t prefill_chunk, int32_t max_context, bool prefix_cache, bool jump_forward,
                 int32_t ask_above, int32_t look_ahead, bool async_scheduling, bool tune_steps,
                 std::string step_costs, int32_t max_waiting, int32_t max_finished,
                 std::vector<int32_t> eos_token_ids, int32_t debug_preempt_every, double debug_busy_wait,
                 bool debug_checks) {
  EngineConfig config;
  config.num_blocks = std::move(num_blocks);
  config.max_num_seqs = max_num_seqs;
  config.max_step_tokens = max_step_tokens;
  config.prefill_chunk = prefill_chunk;
  config.max_context = max_context;
  config.prefix_cache = prefix_cache;
  config.jump_forward = jump_forward;
  config.ask_above = ask_above;
  config.look_ahead = look_ahead;
  config.async_scheduling = async_scheduling;
  config.tune_steps = tune_steps;
  config.step_costs = std::move(step_costs);
  config.max_waiting = max_waiting;
  config.max_finished = max_finished;
  config.eos_token_ids = std::move(eos_token_ids);
  config.debug_preempt_every = debug_preempt_every;
  config.debug_busy_wait = debug_busy_wait;
  config.debug_checks = debug_checks;
  new (self) PyEngine(executor, pool, std::move(tokens), std::move(config));
}

}  // namespace

void bind_engine(nb::module_& m) {
  nb::module_::import_("atexit").attr("register")(nb::cpp_function(&PyEngine::stop_all));
  bind_executors(m);
  bind_requests(m);
  bind_completions(m);
  const EngineConfig defaults;
  nb::class_<PyEngine>(m, "Engine")
      .def("__init__", &init_engine, nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>(), "executor"_a, "pool"_a,
           "token_table"_a, nb::kw_only(), "num_blocks"_a, "max_num_seqs"_a = defaults.max_num_seqs,
           "max_step_tokens"_a = defaults.max_step_tokens, "prefill_chunk"_a = defaults.prefill_chunk,
           "max_context"_a = defaults.max_context, "prefix_cache"_a = defaults.prefix_cache,
           "jump_forward"_a = defaults.jump_forward, "ask_above"_a = defaults.ask_above,
           "look_ahead"_a = defaults.look_ahead, "async_scheduling"_a = defaults.async_scheduling,
           "tune_steps"_a = defaults.tune_steps, "step_costs"_a = defaults.step_costs,
           "max_waiting"_a = defaults.max_waiting, "max_finished"_a = defaults.max_finished,
           "eos_token_ids"_a = nb::list(), "debug_preempt_every"_a = defaults.debug_preempt_every,
           "debug_busy_wait"_a = defaults.debug_busy_wait, "debug_checks"_a = defaults.debug_checks)
      .def("try_submit", &PyEngine::try_submit, "request"_a)
      .def("poll", &PyEngine::poll, "max"_a, "timeout_s"_a)
      .def(
          "abort", [](PyEngine& e, uint64_t id) { (*e).abort(id); }, "id"_a)
      .def("abort_all", [](PyEngine& e) { (*e).abort_all(); })
      .def("abort_unstarted", [](PyEngine& e) { (*e).abort_unstarted(); })
      .def("stop", &PyEngine::stop)
      .def("try_stop", &PyEngine::try_stop, "timeout_s"_a)
      .def("describe", &PyEngine::describe)
      .def("stats", &stats_dict)
      .def("step_costs", [](PyEngine& e) { return (*e).step_costs(); })
      .def("check_integrity", &PyEngine::check_integrity);
}

}  // namespace deepinfer::bindings
