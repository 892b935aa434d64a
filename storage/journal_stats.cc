#include "storage/journal_stats.h"

namespace tarry::storage {

void JournalStats::report(MetricSink& sink) const {
  sink.counter({"tarry_storage_journal_rounds_total", "Journal rounds with records."}, rounds);
  sink.counter({"tarry_storage_journal_idle_notes_total", "Journal rounds without records."},
               idle_notes);
  sink.counter({"tarry_storage_fsyncs_total", "Syncs of the journal."}, syncs);
  sink.counter({"tarry_storage_journal_records_total", "Journal records written."}, records);
  sink.counter({"tarry_storage_journal_bytes_total",
                "Bytes of the journal records, without headers and padding."},
               bytes);
  sink.counter({"tarry_storage_journal_written_bytes_total",
                "Bytes written to the journal, with headers and padding."},
               disk_bytes);
  sink.counter({"tarry_storage_journal_files_total", "Journal files begun."}, files);
  sink.gauge({"tarry_storage_journal_live_bytes", "Journal bytes that a recovery would read."},
             live_bytes);
  sink.histogram({"tarry_storage_journal_round_seconds",
                  "Time for the write and sync of a journal round.", "journal_round_ms"},
                 round_us, TimeUnit::microseconds);
}

}  // namespace tarry::storage
