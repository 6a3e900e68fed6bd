/* For the options of the examples: a text that is no number must not count as 0, which is a rank. */
#ifndef READ_NUMBER_H
#define READ_NUMBER_H

#include <errno.h>
#include <stdlib.h>

/* Reads a whole number from `least` to `most`. Returns whether the text is one. */
static inline int read_number(const char *text, long least, long most, long *number) {
    char *end = NULL;
    errno = 0;
    long found = strtol(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || found < least || found > most) {
        return 0;
    }
    *number = found;
    return 1;
}

#endif
