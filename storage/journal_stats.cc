#include "storage/journal_stats.h"

namespace tarry::storage {

void JournalStats::report(MetricSink& sink) const {
  sink.counter({"tarry_storage_journal_rounds_total", "Rounds of the journal with records."},
               rounds);
  sink.counter({"tarry_storage_journal_idle_notes_total", "Rounds of the journal without records."},
               idle_notes);
  sink.counter({"tarry_storage_fsyncs_total", "Syncs of the journal."}, syncs);
  sink.counter({"tarry_storage_journal_records_total", "Records of the journal."}, records);
  sink.counter({"tarry_storage_journal_bytes_total", "Bytes of the journal's records."}, bytes);
  sink.counter({"tarry_storage_journal_written_bytes_total", "Bytes written for them."},
               disk_bytes);
  sink.counter({"tarry_storage_journal_files_total", "Files of the journal that were begun."},
               files);
  sink.gauge({"tarry_storage_journal_live_bytes", "What a recovery would read."}, live_bytes);
  sink.histogram({"tarry_storage_journal_round_seconds",
                  "Write and sync of a round of the journal.", "journal_round_ms"},
                 round_us, TimeUnit::microseconds);
}

}  // namespace tarry::storage
