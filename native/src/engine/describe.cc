// What an engine is doing, for a report about one that no longer does it.
#include <chrono>
#include <utility>

#include "deepinfer/status.h"
#include "engine/engine_core.h"

namespace deepinfer {
namespace {

constexpr size_t kShownSamples = 8;  // of one request, besides those that run

const char* state_name(const Sample& sample) {
  switch (sample.state) {
    case Sequence::State::kNew: return "new";
    case Sequence::State::kWaiting: return "waiting";
    case Sequence::State::kRunning: return sample.is_held ? "held" : "running";
    case Sequence::State::kFinished: return "finished";
  }
  return "";
}

void write_sample(const Sample& sample, std::string& out) {
  int64_t num_blocks = 0;
  for (const SequenceBlocks::Group& group : sample.blocks.groups) num_blocks += std::ssize(group.blocks);
  out += str_cat("{\"sample\":", sample.order.sample, ",\"state\":\"", state_name(sample),
                 "\",\"tokens\":", sample.tokens.size(), ",\"computed\":", sample.num_computed,
                 ",\"in_step\":", sample.num_scheduled, ",\"output\":", sample.num_output(),
                 ",\"blocks\":", num_blocks, ",\"preemptions\":", sample.num_preemptions, "}");
}

void write_request(const RequestState& request, std::string& out) {
  out += str_cat("{\"id\":", request.request.id, ",\"prompt_tokens\":", request.num_prompt(),
                 ",\"max_tokens\":", request.request.sampling.max_tokens,
                 ",\"n\":", request.request.num_samples, ",\"finished\":", request.num_finished,
                 ",\"seconds\":", request.seconds_since_submit(), ",\"samples\":[");
  bool is_first = true;
  for (size_t s = 0; s < request.samples.size(); ++s) {
    const Sample& sample = *request.samples[s];
    if (s >= kShownSamples && sample.state != Sequence::State::kRunning) continue;
    if (!std::exchange(is_first, false)) out += ",";
    write_sample(sample, out);
  }
  out += "]}";
}

}  // namespace

std::string EngineCore::describe() const {
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - step_started_).count();
  const EngineStats s = stats();
  std::string out = str_cat("{\"step\":", s.num_steps, ",\"computing\":", is_computing_ ? "true" : "false",
                            ",\"step_tokens\":", is_computing_ ? batch_.num_tokens() : 0,
                            ",\"step_seconds\":", is_computing_ ? seconds : 0.0,
                            ",\"running\":", s.num_running, ",\"waiting\":", s.num_waiting,
                            ",\"blocks_used\":", s.num_blocks_used, ",\"blocks_total\":", s.num_blocks_total,
                            ",\"preemptions\":", s.num_preemptions, ",\"failed_steps\":", s.num_failed_steps,
                            ",\"suspects\":", search_.suspects().size(), ",\"requests\":[");
  bool is_first = true;
  for (const auto& [ordinal, request] : live_) {
    if (!std::exchange(is_first, false)) out += ",";
    write_request(*request, out);
  }
  return out + "]}";
}

}  // namespace deepinfer
