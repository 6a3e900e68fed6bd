// A call of muster.hpp that must fail: with what status, and what the exception says.
#ifndef FAILS_HPP
#define FAILS_HPP

#include "check.h"

#include <muster.hpp>

#include <cstdint>

template <class Call> void fails(const char *file, int line, muster::status code, const char *words, Call call) {
    try {
        call();
    } catch (const muster::error &error) {
        check_status(file, line, words, static_cast<std::int64_t>(code), static_cast<std::int64_t>(error.code()));
        check_contains(file, line, error.what(), words);
        return;
    }
    check_failed(file, line, words);
}
#define FAILS(code, words, call) fails(__FILE__, __LINE__, muster::status::code, words, [&] { static_cast<void>(call); })

#endif
