/* The files of the page, embedded by embed.py: each packed with gzip, and named by its path in a URL. */
#ifndef WEB_ASSETS_H
#define WEB_ASSETS_H

#include "web/http.h"

extern const struct http_asset web_assets[]; /* NULL path behind the last */

#endif
