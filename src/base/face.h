/* What a message calls a field or a setting depends on who reads it: by its name, as Python, C, JSON and config
 * files have it (`use_gpu`), or by the option of the command (--use-gpu). A request carries the face that it
 * came through; whoever refuses it asks the table of the names for the spelling of that face. */
#ifndef BASE_FACE_H
#define BASE_FACE_H

enum face { FACE_FIELDS, FACE_COMMAND, FACES };

#endif
