/* A report's metrics as they go into what other programs read as JSON. */
#ifndef VIEW_REPORT_JSON_H
#define VIEW_REPORT_JSON_H

#include <stdbool.h>

#include "base/buffer.h"
#include "journal/journal.h"

/* Appends the metrics on one line: as they stand in the journal, or corrected as those of a worker are. False:
 * they are no JSON object either way, which no agent lets through, and {} stands in their place. */
bool report_json_append(const struct journal_report *report, struct buffer *out);

#endif
