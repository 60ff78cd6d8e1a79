/* Marks what libtrainyard exports; all else is hidden. */
#ifndef TRAINYARD_API_H
#define TRAINYARD_API_H

#define TY_API __attribute__((visibility("default")))

#endif
