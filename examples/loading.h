/* Loads a library at run time, so that an example builds where that library is not installed. A program that has the library's
 * headers needs none of this: it includes them, and is linked with the library. */
#ifndef LOADING_H
#define LOADING_H

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* A function's name, and the pointer that gets it. */
struct function {
    const char *name;
    void *pointer;
};

/* For lists of functions: F(result, name, parameters) for each. One macro makes the pointers, the next the table of them.
 * (It takes two steps, so that a name that is a macro, as some of CUDA's are, is looked up by what it stands for.) */
#define MAKE_POINTER(result, name, parameters) static result(*name) parameters;
#define MAKE_ENTRY(result, name, parameters) ENTRY_OF(name)
#define ENTRY_OF(name) {#name, &name},

/* Loads a library by its name, from where the system looks and from LD_LIBRARY_PATH, and finds its functions. Returns NULL, or
 * the reason why that is not possible. The library stays loaded. */
static inline const char *load(const char *name, const struct function *functions, size_t count) {
    static char reason[512];
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        snprintf(reason, sizeof reason, "%s", dlerror());
        return reason;
    }
    for (size_t i = 0; i < count; i++) {
        void *symbol = dlsym(library, functions[i].name);
        if (symbol == NULL) {
            snprintf(reason, sizeof reason, "%s has no %s", name, functions[i].name);
            return reason;
        }
        memcpy(functions[i].pointer, &symbol, sizeof symbol); /* ISO C turns no object pointer into one to a function */
    }
    return NULL;
}

#endif
