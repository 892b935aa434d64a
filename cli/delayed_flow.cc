#include "cli/delayed_flow.h"

#include <algorithm>
#include <bit>

namespace tarry::cli {
namespace {

using std::chrono::milliseconds;

// A sender that woke up for each of 50 000 records a second would measure itself.
constexpr double max_groups_per_second = 10'000;

std::int64_t rounded_up_to_ms(std::int64_t us) {
  return (us + 999) / 1000 * 1000;
}

// Well mixed bits for consecutive numbers, after Steele, Lea and Flood.
std::uint64_t mixed(std::uint64_t number) {
  number += 0x9e3779b97f4a7c15u;
  number = (number ^ (number >> 30)) * 0xbf58476d1ce4e5b9u;
  number = (number ^ (number >> 27)) * 0x94d049bb133111ebu;
  return number ^ (number >> 31);
}

std::int64_t in_us(milliseconds time) {
  return time.count() * 1000;
}

}  // namespace

void FlowFigures::add(const FlowFigures& other) {
  accepted += other.accepted;
  accepted_late += other.accepted_late;
  delivered += other.delivered;
  early += other.early;
  lost += other.lost;
  twice += other.twice;
  not_due += other.not_due;
  unconfirmed += other.unconfirmed;
  lag.add(other.lag);
}

DelayedFlow::DelayedFlow(const FlowPlan& plan)
    : plan_(plan),
      group_size_(static_cast<std::uint64_t>(std::max(1.0, plan.rate / max_groups_per_second))),
      accepted_(plan.is_tracked ? plan.count : 0),
      arrived_(plan.is_tracked ? plan.count : 0) {}

std::int64_t DelayedFlow::planned(std::uint64_t number) const {
  if (plan_.rate <= 0) return began();
  // All records of a group are planned for the moment of its first one.
  const std::uint64_t before = (number - plan_.first) / group_size_ * group_size_;
  return began() + static_cast<std::int64_t>(static_cast<double>(before) * 1e6 / plan_.rate);
}

std::int64_t DelayedFlow::due(std::uint64_t number) const {
  if (!plan_.is_delayed) return planned(number);
  if (plan_.is_burst) return rounded_up_to_ms(began()) + in_us(plan_.delay);
  const auto window = static_cast<std::uint64_t>(plan_.spread.count()) + 1;
  // The due time follows from the number, so that the receiver needs no table of what was sent.
  const milliseconds later{static_cast<std::int64_t>(mixed(plan_.seed + number) % window)};
  return rounded_up_to_ms(planned(number)) + in_us(plan_.delay + later);
}

std::int64_t DelayedFlow::last_due() const {
  const std::int64_t last = planned(plan_.first + plan_.count - 1);
  if (!plan_.is_delayed) return last;
  if (plan_.is_burst) return due(plan_.first);
  return rounded_up_to_ms(last) + in_us(plan_.delay + plan_.spread);
}

void DelayedFlow::accept(std::uint64_t number, std::int64_t now) {
  // A count alone: nobody concludes from it that other memory can be read.
  if (plan_.is_delayed && now > due(number)) accepted_late_.fetch_add(1, std::memory_order_relaxed);
  if (!plan_.is_tracked || accepted_.insert(number - plan_.first))
    accepted_count_.fetch_add(1, std::memory_order_relaxed);
}

void DelayedFlow::arrive(std::uint64_t number, std::int64_t now) {
  const std::int64_t lag = now - due(number);
  if (plan_.is_delayed && lag < 0) ++early_;
  if (plan_.is_tracked && !arrived_.insert(number - plan_.first)) {
    ++twice_;
    return;
  }
  lag_.add(lag);
  delivered_count_.fetch_add(1, std::memory_order_relaxed);
}

std::uint64_t DelayedFlow::missing(std::int64_t now) const {
  const bool all_due = last_due() <= now;
  std::uint64_t missing = 0;
  for (std::size_t i = 0; i < accepted_.word_count(); ++i) {
    std::uint64_t left = accepted_.word(i) & ~arrived_.word(i);
    // At the end, when this is asked most, whole words are counted.
    if (all_due) {
      missing += static_cast<std::uint64_t>(std::popcount(left));
      continue;
    }
    for (; left != 0; left &= left - 1) {
      const auto bit = static_cast<std::uint64_t>(std::countr_zero(left));
      missing += due(plan_.first + i * 64 + bit) <= now;
    }
  }
  return missing;
}

FlowFigures DelayedFlow::figures(std::int64_t now) const {
  FlowFigures figures;
  figures.accepted = accepted();
  figures.accepted_late = accepted_late_.load(std::memory_order_relaxed);
  figures.delivered = delivered();
  figures.early = early_;
  figures.twice = twice_;
  figures.lag = lag_;
  figures.lost = missing(now);
  std::uint64_t not_arrived = 0;
  for (std::size_t i = 0; i < accepted_.word_count(); ++i) {
    const std::uint64_t accepted = accepted_.word(i), arrived = arrived_.word(i);
    not_arrived += static_cast<std::uint64_t>(std::popcount(accepted & ~arrived));
    // A record may arrive although its producer got no answer, for instance after a lost
    // connection.
    figures.unconfirmed += static_cast<std::uint64_t>(std::popcount(arrived & ~accepted));
  }
  figures.not_due = not_arrived - figures.lost;
  return figures;
}

}  // namespace tarry::cli
