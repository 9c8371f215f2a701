#include "engine/engine_core.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <exception>
#include <optional>
#include <utility>

#include "deepinfer/status.h"

namespace deepinfer {
namespace {

EngineConfig checked(EngineConfig config, const ModelInfo& info) {
  DI_CHECK(config.max_num_seqs > 0 && config.max_step_tokens > 0 && config.prefill_chunk > 0);
  DI_CHECK(config.max_waiting > 0 && config.max_finished > 0 && config.look_ahead > 0);
  if (config.max_context <= 0 || config.max_context > info.max_positions)
    config.max_context = info.max_positions;
  return config;
}

SchedulerConfig scheduler_config(const EngineConfig& config) {
  return {config.max_num_seqs, config.max_step_tokens, config.prefill_chunk, config.debug_preempt_every};
}

// The message, and whether another attempt may help: a broken invariant would only repeat.
std::pair<std::string, bool> describe_error(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& e) {
    return {e.what(), e.code() != ErrorCode::kInternal};
  } catch (const std::exception& e) {
    return {e.what(), true};
  } catch (...) {
    return {"the executor failed without a reason", true};
  }
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double thread_cpu_seconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

}  // namespace

EngineCore::EngineCore(Executor& executor, ThreadPool& pool, std::shared_ptr<const TokenTable> tokens,
                       EngineConfig config)
    : executor_(executor),
      token_table_(std::move(tokens)),
      config_(checked(std::move(config), executor.info())),
      info_(executor.info()),
      kv_(executor.cache_groups(), config_.num_blocks, config_.prefix_cache),
      scheduler_(scheduler_config(config_), kv_, this),
      rows_(pool),
      constraints_(pool, config_.forcing_seconds),
      late_texts_(*token_table_, config_.async_scheduling && pool.num_threads() > 1, config_.async_min_rows),
      budget_(config_.max_step_tokens, config_.max_num_seqs, config_.tune_steps) {
  costs_.read(config_.step_costs);
  executor_.allocate_cache(config_.num_blocks);
  executor_.reserve(config_.max_step_tokens);
  stats_.num_blocks_total = kv_.num_blocks_total();
}

void EngineCore::check_request(const Request& request) const {
  const auto refuse = [](const auto&... parts) { deepinfer::fail(ErrorCode::kBadRequest, parts...); };
  const int64_t num_prompt = std::ssize(request.prompt);
  const SamplingParams& sampling = request.sampling;
  if (num_prompt == 0) refuse("the prompt has no tokens");
  for (const int32_t token : request.prompt)
    if (token < 0 || token >= info_.vocab_size)
      refuse("token id ", token, " is outside the vocabulary of ", info_.vocab_size);
  if (const std::string why = why_invalid(sampling, info_.vocab_size); !why.empty()) refuse(why);
  if (request.num_samples < 1) refuse("n is ", request.num_samples, ", it must be at least 1");
  for (const int32_t token : request.constraint_after)
    if (token < 0 || token >= info_.vocab_size)
      refuse("constraint_after has token id ", token, ", outside the vocabulary of ", info_.vocab_size);
  if (!request.constraint && !request.constraint_after.empty())
    refuse("constraint_after is given without a constraint");
  const bool has_range = request.score_begin < request.score_end;
  if (has_range && (request.score_begin < 1 || request.score_end > num_prompt + 1))
    refuse("scores are wanted for positions ", request.score_begin, " to ", request.score_end - 1,
           ", the prompt allows 1 to ", num_prompt);
  if (sampling.max_tokens == 0 && request.prompt_logprobs < 0 && !has_range)
    refuse("max_tokens is 0 and no prompt scores are asked: nothing to do");
  const int64_t at_least = num_prompt + (sampling.max_tokens > 0 ? 1 : 0);
  if (at_least > config_.max_context)
    refuse("the prompt has ", num_prompt, " tokens and the context limit is ", config_.max_context,
           sampling.max_tokens > 0 ? ", which must hold one more" : "");
  const int64_t at_most = std::min<int64_t>(num_prompt + sampling.max_tokens, config_.max_context);
  if (const std::string why = kv_.why_never(at_most); !why.empty())
    refuse("the request ", why, ": lower max_tokens (", sampling.max_tokens, ") or raise kv_cache_bytes");
}

// From the first token to the last if nothing ends it early; samples that find no seat run in turns.
int64_t EngineCore::num_expected_steps(const Request& request) const {
  const int64_t room = config_.max_context - std::ssize(request.prompt);
  const int64_t num_turns = (int64_t{request.num_samples} - 1) / config_.max_num_seqs + 1;
  return std::min<int64_t>(request.sampling.max_tokens, room) * num_turns;
}

void EngineCore::add(Request&& request) {
  const uint64_t ordinal = num_arrived_++;
  const uint64_t id = request.id;
  auto& state = live_[ordinal];
  const uint64_t rank = rank_of(ordinal, num_expected_steps(request), config_.look_ahead);
  state = std::make_unique<RequestState>(std::move(request), ordinal, rank, config_.eos_token_ids);
  by_id_[id] = state.get();
  if (state->samples[0]->num_wanted > 0) {
    scheduler_.add(*state->samples[0]);
  } else {
    complete(*state);  // prompt scores of a single token: an empty list
  }
}

void EngineCore::load(Sequence& sequence) { static_cast<Sample&>(sequence).load(); }

void EngineCore::unload(Sequence& sequence) { static_cast<Sample&>(sequence).unload(); }

// Between two steps: what is late is made good, so that a request that is cut short has all its text.
void EngineCore::settle_texts() {
  if (late_texts_.is_empty()) return;
  late_texts_.finish();
  end_stopped();
  remove_ended();
}

void EngineCore::end_stopped() {
  for (Sample* sample : late_texts_.take_stopped()) {
    if (sample->is_closed) continue;
    sample->result.stop_string = sample->text.matched_stop();
    end_sample(*sample, FinishReason::kStop);
  }
}

void EngineCore::abort(uint64_t id) {
  settle_texts();
  const auto it = by_id_.find(id);
  if (it != by_id_.end()) cut_short(*it->second, FinishReason::kAborted);
}

void EngineCore::abort_all() {
  while (!by_id_.empty()) abort(by_id_.begin()->first);
}

void EngineCore::abort_unstarted() {
  settle_texts();
  std::vector<RequestState*> unstarted;
  for (const auto& [ordinal, request] : live_)
    if (request->samples[0]->num_cached < 0) unstarted.push_back(request.get());
  for (RequestState* request : unstarted) cut_short(*request, FinishReason::kAborted);
}

bool EngineCore::plan() {
  step_started_ = std::chrono::steady_clock::now();
  step_cpu_started_ = thread_cpu_seconds();
  if (!search_.suspects().empty() || is_anybody_held_) hold_all_but_suspects();
  scheduler_.set_budget(budget_.next(costs_));
  work_ = scheduler_.schedule();
  ++stats_.num_steps;
  if (work_.empty()) {
    // Otherwise there is always progress.
    DI_CHECK(config_.debug_preempt_every > 0 || is_anybody_held_, "nothing to run with ", live_.size(),
             " live requests");
    search_.give_up();
    return false;
  }
  build_batch(work_, kv_, batch_);
  rows_.plan(work_, batch_, info_.vocab_size);
  for (const auto& [sequence, num_tokens] : work_) {
    RequestState& request = *static_cast<Sample*>(sequence)->request;
    if (request.completion.queue_seconds == 0)
      request.completion.queue_seconds = request.seconds_since_submit();
  }
  is_computing_ = true;
  return true;
}

void EngineCore::compute() {
  step_error_ = nullptr;
  const double started = thread_cpu_seconds();
  make_masks();
  const double forward_started = thread_cpu_seconds();
  try {
    late_texts_.start();
    executor_.forward(batch_, rows_);
  } catch (...) {
    step_error_ = std::current_exception();
  }
  forward_seconds_ = thread_cpu_seconds() - forward_started;
  late_texts_.finish();
  if (!step_error_) advance_constraints();
  if (config_.debug_busy_wait <= 0) return;
  // A slower build, for tests of measurements: they have to find it. By CPU time, as a slower build would be.
  const double now = thread_cpu_seconds();
  const double end = now + (now - started) * config_.debug_busy_wait;
  while (thread_cpu_seconds() < end) {
  }
}

// For samples whose first constrained token this step samples; others have had their mask since the last one.
void EngineCore::make_masks() {
  for (const RowTask& task : rows_.tasks()) {
    SampleConstraint& constraint = task.sample->constraint;
    if (task.kind != RowTask::Kind::kSample || !constraint.is_active()) continue;
    if (constraint.has_mask || constraint.is_asked || !constraint.error.empty()) continue;
    constraints_.add({.constraint = &constraint, .room = 1, .ends = task.sample->request->stop_tokens});
  }
  run_constraints();
}

void EngineCore::run_constraints() {
  if (constraints_.is_empty()) return;
  const auto started = std::chrono::steady_clock::now();
  constraints_.run(info_.vocab_size);
  stats_.constraint_seconds += seconds_since(started);
}

// Whether a token that is sampled without a mask would be sampled with it too, if it is allowed: not where
// the mask decides which tokens are left to choose from, nor where tokens are held until the mask leaves no
// other.
static bool can_ask(const SamplingParams& sampling, int32_t num_output) {
  const bool is_greedy = sampling.temperature < kMinTemperature;
  return num_output >= sampling.min_tokens && (is_greedy || (sampling.top_k <= 0 && sampling.top_p >= 1.0f));
}

// The next masks, while nobody waits for them, and what they force. The step has been computed: it is not
// tried again.
void EngineCore::advance_constraints() {
  for (const RowTask& task : rows_.tasks()) {
    Sample& sample = *task.sample;
    const RequestState& request = *sample.request;
    const int32_t token = task.output.token;
    if (task.kind != RowTask::Kind::kSample || sample.constraint.compiled == nullptr) continue;
    if (!task.output.error.empty() || std::ranges::count(request.stop_tokens, token) > 0) continue;
    const bool was_started = sample.constraint.has_started;
    if (sample.constraint.is_asked) ++stats_.num_masks_spared;
    if (!was_started && !sample.ends_with(request.request.constraint_after, token)) continue;
    sample.constraint.has_started = true;
    const int32_t num_output = sample.num_output() + 1;
    const int32_t room = std::min(request.request.sampling.max_tokens - num_output,
                                  config_.max_context - request.num_prompt() - num_output);
    constraints_.add(
        {.constraint = &sample.constraint,
         .token = was_started ? token : -1,
         .room = room,
         .max_forced = config_.jump_forward ? std::min(room, kMaxForced) : 0,
         .ask_above = can_ask(request.request.sampling, num_output) ? config_.ask_above : kNeverAsk,
         .ends = request.stop_tokens});
  }
  run_constraints();
}

void EngineCore::finish() {
  is_computing_ = false;
  if (step_error_) {
    end_stopped();
    remove_ended();
    handle_failure();
  } else {
    search_.on_success();
    measure();
    advance();
  }
  if (config_.debug_checks) check_integrity();
  graveyard_.clear();
  stats_.busy_seconds += seconds_since(step_started_);
  stats_.host_seconds += thread_cpu_seconds() - step_cpu_started_ - forward_seconds_;
}

// Before anything of the step is advanced. Left out: the first step, which touches memory for the first time,
// and steps with scores, whose work is somebody else's.
void EngineCore::measure() {
  const auto is_score = [](const RowTask& task) { return task.kind == RowTask::Kind::kPromptScore; };
  if (stats_.num_steps == 1 || config_.debug_busy_wait > 0 || std::ranges::any_of(rows_.tasks(), is_score))
    return;
  StepShape shape;
  for (const auto& [sequence, num_tokens] : work_) {
    (num_tokens == 1 ? shape.num_decodes : shape.num_prefill) += num_tokens;
    shape.context +=
        int64_t{num_tokens} * sequence->num_computed + int64_t{num_tokens} * (num_tokens + 1) / 2;
  }
  costs_.add(shape, forward_seconds_);
  const int32_t budget = scheduler_.budget();
  if (shape.num_tokens() == budget) costs_.add_full(budget, forward_seconds_ / budget);
}

void EngineCore::hold_all_but_suspects() {
  is_anybody_held_ = !search_.suspects().empty();
  for (const auto& [ordinal, request] : live_)
    for (const std::unique_ptr<Sample>& sample : request->samples)
      sample->is_held = is_anybody_held_ && !search_.is_suspect(ordinal);
}

// Tokens computed in earlier steps are still good, by the executor's contract; the state of a per-sequence
// group may be half way.
void EngineCore::handle_failure() {
  ++stats_.num_failed_steps;
  const bool has_state = std::ranges::any_of(
      kv_.groups(), [](const CacheGroupSpec& group) { return group.kind == CacheKind::kSequence; });
  std::vector<uint64_t> requests;
  for (const auto& [sequence, num_tokens] : work_) {
    if (static_cast<Sample*>(sequence)->request->is_done) continue;  // a stop string ended it meanwhile
    if (requests.empty() || requests.back() != sequence->order.request)
      requests.push_back(sequence->order.request);
    if (has_state) scheduler_.restart(*sequence);
  }
  std::ranges::sort(requests);  // the step may have another order than that of arrival
  if (requests.empty()) return;
  const auto [message, is_retryable] = describe_error(step_error_);
  const std::optional<uint64_t> blamed = search_.on_failure(requests);
  if (blamed) fail(*live_.at(*blamed), message, is_retryable);
  for (const uint64_t ordinal : requests) {
    if (!has_state || ordinal == blamed) continue;
    RequestState& request = *live_.at(ordinal);
    if (++request.num_restarts > kMaxRestarts) fail(request, message, is_retryable);
  }
  if (search_.num_blamed() >= kMaxBlamed) std::rethrow_exception(step_error_);
}

void EngineCore::advance() {
  for (const auto& [sequence, num_tokens] : work_) {
    const int32_t num_prompt = static_cast<Sample*>(sequence)->request->num_prompt();
    stats_.num_prompt_tokens += std::clamp(num_prompt - sequence->num_computed, 0, num_tokens);
    scheduler_.advance(*sequence, num_tokens);
  }
  end_stopped();
  step_time_ = std::chrono::duration<double>(RequestState::Clock::now().time_since_epoch()).count();
  for (RowTask& task : rows_.tasks()) {
    RequestState& request = *task.sample->request;
    if (request.is_done) continue;
    switch (task.kind) {
      case RowTask::Kind::kPromptScore: take_score(task); break;
      case RowTask::Kind::kForcedScore: take_forced_score(task); break;
      case RowTask::Kind::kSample: take_token(task); break;
    }
  }
  start_forks();
  remove_ended();
}

void EngineCore::take_score(RowTask& task) {
  RequestState& request = *task.sample->request;
  if (!task.output.error.empty())
    return fail(request, str_cat(task.output.error, " (position ", task.position, " of the prompt)"), false);
  request.next_score = task.position + 1;
  request.num_restarts = 0;
  task.sample->limit_cached();
  if (request.request.prompt_logprobs >= 0 && task.position < request.num_prompt())
    request.completion.prompt_logprobs.push_back(std::move(task.output.logprobs));
  if (!request.wants_tokens() && request.next_score == request.end_score) complete(request);
}

static std::string place_of(const Sample& sample, int32_t position) {
  return str_cat(" (sample ", sample.order.sample, ", position ", position, ")");
}

void EngineCore::take_forced_score(RowTask& task) {
  Sample& sample = *task.sample;
  if (sample.is_closed) return;  // an earlier row of it failed
  sample.request->num_restarts = 0;
  if (!task.output.error.empty())
    return fail_sample(sample, task.output.error + place_of(sample, task.position));
  sample.result.logprobs.push_back(std::move(task.output.logprobs));
  sample.limit_cached();
  if (sample.ending && sample.num_unscored() == 0) end_sample(sample, *sample.ending);
}

void EngineCore::take_token(RowTask& task) {
  Sample& sample = *task.sample;
  RequestState& request = *sample.request;
  if (sample.is_closed) return;
  if (request.completion.first_token_seconds == 0)
    request.completion.first_token_seconds = request.seconds_since_submit();
  request.num_restarts = 0;
  if (sample.state == Sequence::State::kNew) newborn_.push_back(&sample);
  if (!task.output.error.empty())
    return fail_sample(sample, task.output.error + place_of(sample, task.position));
  const int32_t token = task.output.token;
  if (std::ranges::find(request.stop_tokens, token) != request.stop_tokens.end()) {
    sample.result.stop_token = token;
    return end_sample(sample, FinishReason::kStop);
  }
  try {
    if (request.request.sampling.top_logprobs >= 0)
      sample.result.logprobs.push_back(std::move(task.output.logprobs));
    const std::vector<int32_t> forced = std::exchange(sample.constraint.forced, {});
    const bool is_done = sample.constraint.is_done;  // with the last of them
    bool goes_on = append_token(sample, token, is_done && forced.empty());
    for (size_t i = 0; i < forced.size() && goes_on; ++i, ++stats_.num_forced_tokens)
      goes_on = append_token(sample, forced[i], is_done && i + 1 == forced.size());
    if (goes_on && !sample.constraint.error.empty())
      fail_sample(sample,
                  sample.constraint.error + place_of(sample, request.num_prompt() + sample.num_output()));
    sample.limit_cached();
  } catch (const std::exception& e) {  // no memory
    if (!sample.is_closed) fail_sample(sample, str_cat("sample ", sample.order.sample, ": ", e.what()));
  }
}

// Whether the sample goes on after it, as far as is known now. is_complete: its constraint lets no more
// tokens follow. With a constraint nothing is late: several tokens may come at once, and the masks of those
// after a stop string would be for nothing.
bool EngineCore::append_token(Sample& sample, int32_t token, bool is_complete) {
  const RequestState& request = *sample.request;
  const SamplingParams& sampling = request.request.sampling;
  ++stats_.num_generated_tokens;
  sample.append(token);
  if (request.request.wants_token_times) sample.result.token_times.push_back(step_time_);
  const bool can_stop = sample.num_output() >= sampling.min_tokens;
  const bool is_full = request.num_prompt() + sample.num_output() >= config_.max_context;
  const bool is_last = is_complete || is_full || sample.num_output() == sampling.max_tokens;
  if (late_texts_.is_on() && !is_last && sample.constraint.compiled == nullptr) {
    late_texts_.add(sample, token, can_stop);
    return true;
  }
  if (sample.text.push(token_table_->bytes(token), can_stop)) {
    sample.result.stop_string = sample.text.matched_stop();
    end_sample(sample, FinishReason::kStop);
  } else if (is_complete) {
    end_sample(sample, FinishReason::kStop);
  } else if (sample.num_output() == sampling.max_tokens) {
    end_sample(sample, FinishReason::kLength);
  } else if (is_full) {
    end_sample(sample, FinishReason::kContext);
  } else {
    return true;
  }
  return false;
}

void EngineCore::end_sample(Sample& sample, FinishReason reason) {
  if (reason != FinishReason::kError && sample.num_unscored() > 0) return sample.stop_growing(reason);
  sample.close(reason);
  ended_.push_back(&sample);
}

// The other samples go on: which error a request reports must not depend on who was computed first.
void EngineCore::fail_sample(Sample& sample, const std::string& error) {
  sample.error = error;
  end_sample(sample, FinishReason::kError);
}

// Before anything gives its blocks back: the copies read the parent's.
void EngineCore::start_forks() {
  copies_.clear();
  for (Sample* sample : newborn_) {
    if (sample->request->is_done || sample->is_closed) continue;
    scheduler_.fork(*sample->request->samples[0], *sample, copies_);
  }
  for (size_t g = 0; g < kv_.groups().size(); ++g) {
    std::vector<std::pair<int32_t, int32_t>> pairs;
    for (const BlockCopy& copy : copies_)
      if (copy.group == static_cast<int32_t>(g)) pairs.emplace_back(copy.source, copy.destination);
    if (pairs.empty()) continue;
    try {
      executor_.copy_blocks(static_cast<int>(g), pairs);
    } catch (const std::exception&) {  // what the children share is not all there: they compute it themselves
      ++stats_.num_failed_steps;
      for (Sample* sample : newborn_) scheduler_.restart(*sample);
      break;
    }
  }
  newborn_.clear();
}

void EngineCore::remove_ended() {
  for (Sample* sample : std::exchange(ended_, {})) {
    RequestState& request = *sample->request;
    if (request.is_done) continue;
    scheduler_.remove(*sample);
    sample->unload();
    if (++request.num_finished < request.request.num_samples) continue;
    request.take_first_error();
    complete(request);
  }
}

void EngineCore::fail(RequestState& request, const std::string& error, bool is_retryable) {
  request.completion.error = error;
  request.completion.error_retryable = is_retryable;
  cut_short(request, FinishReason::kError);
}

void EngineCore::cut_short(RequestState& request, FinishReason reason) {
  for (const std::unique_ptr<Sample>& sample : request.samples)
    if (!sample->is_closed) sample->close(reason);
  complete(request);
}

// The state itself lives until the step is over: tasks of this step may still point to it.
void EngineCore::complete(RequestState& request) {
  for (const std::unique_ptr<Sample>& sample : request.samples)
    if (sample->state != Sequence::State::kFinished) scheduler_.remove(*sample);
  finished_.push_back(request.finish());
  stats_.num_cached_tokens += finished_.back().num_cached_tokens;
  by_id_.erase(finished_.back().id);
  graveyard_.push_back(std::move(live_.extract(request.ordinal).mapped()));
}

std::vector<Completion> EngineCore::take_finished() {
  graveyard_.clear();
  return std::exchange(finished_, {});
}

EngineStats EngineCore::stats() const {
  EngineStats stats = stats_;
  stats.num_preemptions = scheduler_.num_preemptions();
  stats.num_running = scheduler_.num_running();
  stats.num_waiting = scheduler_.num_waiting();
  stats.num_blocks_used = kv_.num_blocks_used();
  return stats;
}

}  // namespace deepinfer
