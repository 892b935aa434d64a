#pragma once

// LogFormat: how the lines of the log look (base/log.h writes them).
//
//   text  2026-11-21T10:00:00.123+00:00 W server: the line
//   json  {"time":"2026-11-21T10:00:00.123+00:00","level":"warn","component":"server",
//          "message":"the line"}   in one line
//
// With json every line on stderr is such an object, that of write_to_stderr() too, as an error of
// the component "tarry".

namespace tarry {

enum class LogFormat { text, json };

// From the next line on.  Any thread.
void set_log_format(LogFormat format);

}  // namespace tarry
