#include "timing/service/timer_results.h"

namespace tarry::timing {

std::string_view to_string(Refusal refusal) {
  switch (refusal) {
    case Refusal::full:
      return "the limit of pending timers is reached";
    case Refusal::stopped:
      return "the timer service is stopped";
    case Refusal::no_period:
      return "the period of a timer must be longer than zero";
  }
  return "unknown";
}

std::string_view to_string(CancelResult result) {
  switch (result) {
    case CancelResult::cancelled:
      return "cancelled";
    case CancelResult::running:
      return "running";
    case CancelResult::gone:
      return "gone";
  }
  return "unknown";
}

std::string_view to_string(RescheduleResult result) {
  switch (result) {
    case RescheduleResult::moved:
      return "moved";
    case RescheduleResult::running:
      return "running";
    case RescheduleResult::gone:
      return "gone";
  }
  return "unknown";
}

}  // namespace tarry::timing
