/// @file
/// muster for C++17: muster.h with owners for its handles, buffers that know their length and type, and errors that cannot
/// be missed.
///
/// Everything here calls muster.h, and means what muster.h says: which call waits for what, which call ends what, and what
/// threads may do. These comments say only what is different here, or new.
///
/// **Errors.** A call that fails throws muster::error. With `MUSTER_NO_EXCEPTIONS` defined (or a compiler that has exceptions
/// turned off) each call returns a muster::result instead. The type muster::outcome<T> below stands for both: it is `T`, or
/// `result<T>`. A program may be made of files of both kinds.
///
/// **Buffers.** A call takes anything that has `std::data` and `std::size`: vectors, arrays, strings, std::span, muster::span.
/// Its element type is one that muster::dtype_of knows. Lengths are checked before the library is called: a buffer that does not
/// fit is `status::invalid`, and nothing has happened. Nothing is copied.
///
/// **Handles** (config, scheduler, cluster, owned_group, request) free what they own, and can be moved, not copied. An object
/// that was moved from is empty. Calls on it are `status::invalid`, except `finalize`, which does nothing, and
/// `request::received`, which is `status::state`. A muster::group and a muster::store only point to their cluster, and must not
/// outlive it.
///
/// SPDX-License-Identifier: MIT OR Apache-2.0

#ifndef MUSTER_HPP
#define MUSTER_HPP

#if __cplusplus < 201703L
#error "muster.hpp needs C++17: compile with -std=c++17 or newer"
#endif

#include <muster.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#if __cplusplus >= 202002L
#include <span>
#endif
#if __cplusplus > 202002L && defined(__has_include)
#if __has_include(<stdfloat>)
#include <stdfloat>
#endif
#endif

#if !defined(MUSTER_NO_EXCEPTIONS) && !defined(__cpp_exceptions)
#define MUSTER_NO_EXCEPTIONS
#endif

/// All of muster's C++ interface.
namespace muster {

// ---------------------------------------------------------------------------------------------------------------- Words

/// The outcome of a call: the MUSTER_ constants of muster.h. A newer library may return values that have no name here.
enum class status : muster_status_t {
    ok = MUSTER_OK,                          ///< Success.
    in_progress = MUSTER_IN_PROGRESS,        ///< The operation is not finished yet.
    scheduler_done = MUSTER_SCHEDULER_DONE,  ///< This process was the scheduler, and its job has ended well.
    invalid = MUSTER_ERR_INVALID,            ///< An argument is not valid. Nothing has happened.
    config = MUSTER_ERR_CONFIG,              ///< A setting is not valid.
    state = MUSTER_ERR_STATE,                ///< Not possible at this moment, for instance after finalize.
    unsupported = MUSTER_ERR_UNSUPPORTED,    ///< `shm` is `require`, but memory cannot be shared; or a missing function.
    limit = MUSTER_ERR_LIMIT,                ///< A limit is exceeded.
    not_found = MUSTER_ERR_NOT_FOUND,        ///< There is no such key, or no such thing.
    rejected = MUSTER_ERR_REJECTED,          ///< The scheduler refused this node.
    bind = MUSTER_ERR_BIND,                  ///< An address could not be bound.
    unreachable = MUSTER_ERR_UNREACHABLE,    ///< The scheduler, or a peer, could not be reached.
    timeout = MUSTER_ERR_TIMEOUT,            ///< The time is up.
    peer_lost = MUSTER_ERR_PEER_LOST,        ///< A process of the cluster was lost.
    peer_left = MUSTER_ERR_PEER_LEFT,        ///< A process that the call needs has left the cluster, or freed the group.
    link = MUSTER_ERR_LINK,                  ///< Two live processes cannot reach each other.
    corrupt = MUSTER_ERR_CORRUPT,            ///< Bytes were damaged on the way.
    mismatch = MUSTER_ERR_MISMATCH,          ///< Ranks called different collectives, or a message does not fit its receive.
    revoked = MUSTER_ERR_REVOKED,            ///< A node has called recover, which ends the epoch for every group.
    aborted = MUSTER_ERR_ABORTED,            ///< A rank aborted the job, or a request was cancelled.
    fenced = MUSTER_ERR_FENCED,              ///< A newer process has this node's place, or the others took it for lost.
    security = MUSTER_ERR_SECURITY,          ///< Authentication or encryption failed.
    journal = MUSTER_ERR_JOURNAL,            ///< What recovery keeps on disk could not be read or written.
    system = MUSTER_ERR_SYSTEM,              ///< The operating system refused something.
    memory = MUSTER_ERR_MEMORY,              ///< Out of memory.
    internal = MUSTER_ERR_INTERNAL,          ///< A bug in the library.
    forked = MUSTER_ERR_FORKED,              ///< The handle belongs to the parent of this forked process.
    interrupted = MUSTER_ERR_INTERRUPTED,    ///< The program has ended the wait: cluster::interrupt, config::set_interrupt.
};

/// Element types.
enum class dtype : std::int32_t {
    int8 = MUSTER_INT8,          ///< 8-bit signed integer.
    int16 = MUSTER_INT16,        ///< 16-bit signed integer.
    int32 = MUSTER_INT32,        ///< 32-bit signed integer.
    int64 = MUSTER_INT64,        ///< 64-bit signed integer.
    uint8 = MUSTER_UINT8,        ///< 8-bit unsigned integer; also plain bytes.
    uint16 = MUSTER_UINT16,      ///< 16-bit unsigned integer.
    uint32 = MUSTER_UINT32,      ///< 32-bit unsigned integer.
    uint64 = MUSTER_UINT64,      ///< 64-bit unsigned integer.
    float16 = MUSTER_FLOAT16,    ///< IEEE 754 half precision.
    bfloat16 = MUSTER_BFLOAT16,  ///< bfloat16.
    float32 = MUSTER_FLOAT32,    ///< IEEE 754 single precision.
    float64 = MUSTER_FLOAT64     ///< IEEE 754 double precision.
};

/// Built-in reductions. muster.h says how each treats NaN, zeros and overflow.
enum class op : std::int32_t {
    sum = MUSTER_SUM,      ///< Sum; integers wrap.
    prod = MUSTER_PROD,    ///< Product; integers wrap.
    min = MUSTER_MIN,      ///< Minimum.
    max = MUSTER_MAX,      ///< Maximum.
    avg = MUSTER_AVG,      ///< Sum divided by the number of ranks.
    bit_and = MUSTER_AND,  ///< Bitwise and; integers only.
    bit_or = MUSTER_OR,    ///< Bitwise or; integers only.
    bit_xor = MUSTER_XOR,  ///< Bitwise exclusive or; integers only.
    sum_exact = MUSTER_SUM_EXACT  ///< The real sum, rounded once: the same bits in any order; floats only.
};

/// What a node is.
enum class role : std::int32_t {
    worker = MUSTER_ROLE_WORKER,  ///< Takes part in world.
    server = MUSTER_ROLE_SERVER   ///< A parameter server.
};

/// What is known of a member: member::state.
enum class member_state : std::int32_t {
    present = MUSTER_MEMBER_PRESENT,  ///< In the cluster, as far as this process has heard.
    lost = MUSTER_MEMBER_LOST,        ///< Lost; the cluster is broken because of it.
    left = MUSTER_MEMBER_LEFT         ///< It has left, and a call that needed it has noticed.
};

/// How talkative the log is.
enum class log_level : std::int32_t {
    error = MUSTER_LOG_ERROR,      ///< Errors.
    warning = MUSTER_LOG_WARNING,  ///< Also warnings: the default.
    info = MUSTER_LOG_INFO,        ///< Also what happens to the cluster.
    debug = MUSTER_LOG_DEBUG       ///< Also what happens inside the cluster.
};

/// In place of a sender's rank: any rank.
inline constexpr std::int32_t any_source = MUSTER_ANY_SOURCE;
/// In place of a tag: any tag.
inline constexpr std::int32_t any_tag = MUSTER_ANY_TAG;

/// How long a call may wait; seconds and minutes convert to it.
using milliseconds = std::chrono::milliseconds;
/// The time-out that the settings give a call. Do not use it for wait_for, wait_any and wait_all: there a negative time counts
/// as 0.
inline constexpr milliseconds usual_timeout{-1};
/// No time-out.
inline constexpr milliseconds no_limit{INT64_MAX};

/// What broke a cluster or a group: muster_failure_t.
using failure = muster_failure_t;
/// A member of a group: muster_member_t.
using member = muster_member_t;
/// What a receive tells of its message: muster_received_t.
using received = muster_received_t;
/// The values with which HCCL starts: muster_hccl_cm_t.
using hccl_cm = muster_hccl_cm_t;

/// The library's version, as "1.0.0".
inline std::string_view version() noexcept { return muster_version(); }

/// The ABI number of the library that is loaded. The header's is MUSTER_ABI_VERSION.
inline std::uint32_t abi_version() noexcept { return muster_abi_version(); }

/// Name and meaning of a status, as "ERR_TIMEOUT: the time is up".
inline std::string_view status_string(status code) noexcept { return muster_status_string(static_cast<muster_status_t>(code)); }

// --------------------------------------------------------------------------------------------------------------- Errors

/// A call failed. The text (`what()`) is the library's sentence: which input was wrong, or what broke the cluster.
class error : public std::runtime_error {
public:
    /// An error with this status and sentence.
    error(status code, const std::string &sentence) : std::runtime_error(sentence), code_(code) {}
    /// The error of a receive whose message does not fit.
    error(status code, const std::string &sentence, const received &message)
        : std::runtime_error(sentence), code_(code), misfit_(message) {}

    /// The status that the call returned.
    status code() const noexcept { return code_; }

    /// If a receive has failed because its message does not fit (`status::mismatch`), that message, with its true length and
    /// type; otherwise nothing. After `wait_all`, ask request::received.
    const std::optional<received> &misfit() const noexcept { return misfit_; }

private:
    status code_;
    std::optional<received> misfit_;
};

/// @cond internal
namespace basic {

// The program asked for the value of a result that is an error. That is a bug of the program.
[[noreturn]] inline void no_value(const error &why) noexcept {
    std::fprintf(stderr, "muster::result: the value was asked for, but there is an error: %s\n", why.what());
    std::abort();
}

// Whether a class is made like std::expected<T, error>.
template <class Expected, class T, class = void> struct is_expected : std::false_type {};
template <class Expected, class T>
struct is_expected<
    Expected, T,
    std::enable_if_t<std::is_same_v<typename Expected::value_type, T> && std::is_same_v<typename Expected::error_type, error> &&
                     std::is_constructible_v<Expected, typename Expected::unexpected_type>>> : std::true_type {};

}  // namespace basic
/// @endcond

/// A value or an error. It is the same class in every C++ standard and with or without exceptions, so it may stand in the
/// interfaces of libraries.
///
/// It converts to `std::expected<T, muster::error>` if the standard library has that, and to classes like it (`tl::expected`).
template <class T> class [[nodiscard]] result {
public:
    using value_type = T;              ///< What a success has.
    using error_type = muster::error;  ///< What a failure has.

    /// A success.
    result(T value) : content_(std::in_place_index<0>, std::move(value)) {}
    /// A failure.
    result(muster::error why) : content_(std::in_place_index<1>, std::move(why)) {}

    /// Whether there is a value.
    bool has_value() const noexcept { return content_.index() == 0; }
    /// Whether there is a value. A `result<bool>` has no such conversion, because a reader would take it for the value: see
    /// has_value.
    template <class B, std::enable_if_t<std::is_same_v<B, bool> && !std::is_same_v<T, bool>, int> = 0>
    explicit operator B() const noexcept {
        return has_value();
    }

    /// The value. If there is none, the program ends (std::abort) with the error's sentence on standard error.
    T &value() & { return *checked(); }
    /// The value. If there is none, the program ends, as above.
    const T &value() const & { return *const_cast<result *>(this)->checked(); }
    /// The value, which may be moved from. If there is none, the program ends, as above.
    T &&value() && { return std::move(*checked()); }
    /// As value().
    T &operator*() & { return value(); }
    /// As value().
    const T &operator*() const & { return value(); }
    /// As value().
    T &&operator*() && { return std::move(*this).value(); }
    /// As value().
    T *operator->() { return checked(); }
    /// As value().
    const T *operator->() const { return &value(); }
    /// The value, or `other` if there is none.
    T value_or(T other) const & { return has_value() ? value() : std::move(other); }
    /// The value, or `other` if there is none.
    T value_or(T other) && { return has_value() ? std::move(*this).value() : std::move(other); }

    /// The error. There must be one.
    const muster::error &error() const { return *std::get_if<1>(&content_); }

    /// The same as a std::expected.
    template <class Expected, std::enable_if_t<basic::is_expected<Expected, T>::value, int> = 0> operator Expected() const & {
        return has_value() ? Expected(value()) : Expected(typename Expected::unexpected_type(error()));
    }
    /// The same as a std::expected.
    template <class Expected, std::enable_if_t<basic::is_expected<Expected, T>::value, int> = 0> operator Expected() && {
        return has_value() ? Expected(std::move(*this).value()) : Expected(typename Expected::unexpected_type(error()));
    }

private:
    T *checked() {
        if (!has_value()) {
            basic::no_value(error());
        }
        return std::get_if<0>(&content_);
    }

    std::variant<T, muster::error> content_;
};

/// A success without a value, or an error.
template <> class [[nodiscard]] result<void> {
public:
    using value_type = void;           ///< A success has nothing.
    using error_type = muster::error;  ///< What a failure has.

    /// A success.
    result() noexcept = default;
    /// A failure.
    result(muster::error why) : why_(std::move(why)) {}

    /// Whether this is a success.
    bool has_value() const noexcept { return !why_; }
    /// Whether this is a success.
    explicit operator bool() const noexcept { return has_value(); }
    /// Does nothing. If this is a failure, the program ends (std::abort) with the error's sentence on standard error.
    void value() const {
        if (why_) {
            basic::no_value(*why_);
        }
    }
    /// The error. There must be one.
    const muster::error &error() const { return *why_; }

    /// The same as a std::expected.
    template <class Expected, std::enable_if_t<basic::is_expected<Expected, void>::value, int> = 0> operator Expected() const {
        return has_value() ? Expected() : Expected(typename Expected::unexpected_type(error()));
    }

private:
    std::optional<muster::error> why_;
};

// -------------------------------------------------------------------------------------------------------------- Buffers

/// @cond internal
namespace basic {

template <class Buffer> using element_t = std::remove_pointer_t<decltype(std::data(std::declval<Buffer &>()))>;
template <class T> using bare_t = std::remove_cv_t<std::remove_reference_t<T>>;

template <class Buffer, class = void> struct is_buffer : std::false_type {};
template <class Buffer>
struct is_buffer<Buffer, std::void_t<element_t<Buffer>, decltype(std::size(std::declval<Buffer &>()))>>
    : std::is_object<element_t<Buffer>> {};
template <class Buffer> using when_buffer = std::enable_if_t<is_buffer<Buffer>::value, int>;
template <class In, class Out> using when_buffers = std::enable_if_t<is_buffer<In>::value && is_buffer<Out>::value, int>;

// Whether a type itself only points to elements. A view's elements are as constant as they were when the view itself is constant,
// and a container's become constant.
template <class T, class = void> inline constexpr bool is_view = false;
template <class T>
inline constexpr bool is_view<T, std::enable_if_t<is_buffer<T>::value>> = std::is_same_v<element_t<T>, element_t<const T>>;

// A list in braces, and an array of constants, look like views, but their elements end with the statement.
template <class T> inline constexpr bool ends_at_once = false;
template <class T> inline constexpr bool ends_at_once<std::initializer_list<T>> = true;
template <class T, std::size_t N> inline constexpr bool ends_at_once<std::array<T, N>> = true;

// Whether the elements outlive the argument: it is no temporary, or it is a view.
template <class Buffer>
inline constexpr bool lends =
    std::is_lvalue_reference_v<Buffer> || (is_view<bare_t<Buffer>> && !ends_at_once<bare_t<Buffer>>);

template <class From, class To> inline constexpr bool points_to = std::is_convertible_v<From (*)[], To (*)[]>;

}  // namespace basic
/// @endcond

/// Elements that lie one after another in somebody's memory; like std::span, but in every standard. Containers, arrays and
/// std::span convert to it, and it converts to std::span.
template <class T> class span {
public:
    using element_type = T;                  ///< The element type, with its const.
    using value_type = std::remove_cv_t<T>;  ///< The element type without const.
    using size_type = std::size_t;           ///< The type of lengths.
    using iterator = T *;                    ///< A pointer.

    /// No elements.
    constexpr span() noexcept = default;
    /// `count` elements from `first` on. (A literal 0 is no pointer: `{0, 2}` are not two elements at null.)
    template <class Pointer,
              std::enable_if_t<(std::is_pointer_v<Pointer> || std::is_null_pointer_v<Pointer>) && std::is_convertible_v<Pointer, T *>,
                               int> = 0>
    constexpr span(Pointer first, std::size_t count) noexcept : first_(first), count_(count) {}
    /// All elements of a container or an array, or of another span. A temporary container is accepted only if the elements are
    /// const.
    template <class Buffer, basic::when_buffer<Buffer> = 0,
              std::enable_if_t<!std::is_same_v<basic::bare_t<Buffer>, span> && basic::points_to<basic::element_t<Buffer>, T> &&
                                   (basic::lends<Buffer> || std::is_const_v<T>),
                               int> = 0>
    constexpr span(Buffer &&buffer) noexcept : first_(std::data(buffer)), count_(static_cast<std::size_t>(std::size(buffer))) {}

    /// The first element; may be null where there is none.
    constexpr T *data() const noexcept { return first_; }
    /// How many elements.
    constexpr std::size_t size() const noexcept { return count_; }
    /// How many bytes.
    constexpr std::size_t size_bytes() const noexcept { return count_ * sizeof(T); }
    /// Whether there are none.
    constexpr bool empty() const noexcept { return count_ == 0; }
    /// The element at `at`, which is not checked.
    constexpr T &operator[](std::size_t at) const { return first_[at]; }
    /// The first element.
    constexpr T *begin() const noexcept { return first_; }
    /// Behind the last one.
    constexpr T *end() const noexcept { return first_ + count_; }
    /// The first `count` elements, which must be there.
    constexpr span first(std::size_t count) const { return {first_, count}; }
    /// The last `count` elements, which must be there.
    constexpr span last(std::size_t count) const { return {first_ + (count_ - count), count}; }
    /// `count` elements from `at` on, which must be there.
    constexpr span subspan(std::size_t at, std::size_t count) const { return {first_ + at, count}; }

private:
    T *first_ = nullptr;
    std::size_t count_ = 0;
};

/// A span of what lies at a pointer.
template <class T> span(T *, std::size_t) -> span<T>;
/// A span of what a container or an array has.
template <class Buffer, basic::when_buffer<Buffer> = 0> span(Buffer &&) -> span<basic::element_t<Buffer>>;

/// One value as a buffer of one element.
template <class T> constexpr span<T> one(T &value) noexcept { return {&value, 1}; }

/// @cond internal
namespace basic {

inline float float_of_bits(std::uint32_t bits) noexcept {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}
inline std::uint32_t bits_of_float(float value) noexcept {
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}
// The upper bits of a number, rounded to the nearest, and to even where two are as near.
constexpr std::uint32_t rounded(std::uint32_t number, unsigned dropped) noexcept {
    const std::uint32_t half = (std::uint32_t{1} << dropped) >> 1;
    return (number + half - 1 + ((number >> dropped) & 1)) >> dropped;
}

inline std::uint16_t half_of(float value) noexcept {
    const std::uint32_t bits = bits_of_float(value);
    const std::uint32_t sign = (bits >> 16) & 0x8000, rest = bits & 0x7fffffff;
    std::uint32_t half = 0;
    if (rest > 0x7f800000) {
        half = 0x7e00 | ((rest >> 13) & 0x1ff);  // NaN, quiet
    } else if (rest >= 0x47800000) {
        half = 0x7c00;  // from 65,536 on: infinity
    } else if (rest >= 0x38800000) {
        half = rounded(rest - 0x38000000, 13);  // may become infinity by rounding
    } else if (rest >= 0x33000000) {
        half = rounded((rest & 0x7fffff) | 0x800000, 126 - (rest >> 23));  // subnormal
    }
    return static_cast<std::uint16_t>(sign | half);
}
inline float float_of_half(std::uint16_t bits) noexcept {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000) << 16, rest = bits & 0x7fff;
    if (rest >= 0x7c00) {
        return float_of_bits(sign | 0x7f800000 | ((rest & 0x3ff) << 13));
    }
    if (rest >= 0x400) {
        return float_of_bits(sign | ((rest << 13) + 0x38000000));
    }
    const float tiny = static_cast<float>(rest) * 0x1p-24F;
    return sign != 0 ? -tiny : tiny;
}
inline std::uint16_t brain_of(float value) noexcept {
    const std::uint32_t bits = bits_of_float(value);
    const bool is_nan = (bits & 0x7fffffff) > 0x7f800000;
    return static_cast<std::uint16_t>(is_nan ? (bits >> 16) | 0x40 : rounded(bits, 16));
}

}  // namespace basic
/// @endcond

/// An IEEE 754 half, to be sent and reduced. To calculate, convert it to float. Conversion from float rounds to nearest, ties
/// to even.
class float16 {
public:
    /// Zero.
    constexpr float16() noexcept = default;
    /// The nearest half.
    explicit float16(float value) noexcept : bits_(basic::half_of(value)) {}
    /// The half with these bits.
    static constexpr float16 from_bits(std::uint16_t bits) noexcept {
        float16 half;
        half.bits_ = bits;
        return half;
    }
    /// Its bits.
    constexpr std::uint16_t bits() const noexcept { return bits_; }
    /// The same number; nothing is lost.
    operator float() const noexcept { return basic::float_of_half(bits_); }

private:
    std::uint16_t bits_ = 0;
};

/// A bfloat16, to be sent and reduced. To calculate, convert it to float. Conversion from float rounds to nearest, ties to
/// even.
class bfloat16 {
public:
    /// Zero.
    constexpr bfloat16() noexcept = default;
    /// The nearest bfloat16.
    explicit bfloat16(float value) noexcept : bits_(basic::brain_of(value)) {}
    /// The bfloat16 with these bits.
    static constexpr bfloat16 from_bits(std::uint16_t bits) noexcept {
        bfloat16 brain;
        brain.bits_ = bits;
        return brain;
    }
    /// Its bits.
    constexpr std::uint16_t bits() const noexcept { return bits_; }
    /// The same number; nothing is lost.
    operator float() const noexcept { return basic::float_of_bits(static_cast<std::uint32_t>(bits_) << 16); }

private:
    std::uint16_t bits_ = 0;
};

/// @cond internal
namespace basic {

template <class T> constexpr dtype usual_dtype() {
    constexpr bool is_number = std::is_integral_v<T> && !std::is_same_v<T, bool> && !std::is_same_v<T, wchar_t> &&
                               !std::is_same_v<T, char16_t> && !std::is_same_v<T, char32_t> && sizeof(T) <= 8;
    if constexpr (is_number) {
        constexpr std::int32_t width = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3;
        constexpr bool is_signed = std::is_signed_v<T> && !std::is_same_v<T, char>;  // char has its sign from the processor
        return static_cast<dtype>((is_signed ? MUSTER_INT8 : MUSTER_UINT8) + width);
    } else if constexpr (std::is_same_v<T, std::byte>) {
        return dtype::uint8;
    } else if constexpr (std::is_same_v<T, float>) {
        return dtype::float32;
    } else if constexpr (std::is_same_v<T, double>) {
        return dtype::float64;
    } else if constexpr (std::is_same_v<T, float16>) {
        return dtype::float16;
    } else if constexpr (std::is_same_v<T, bfloat16>) {
        return dtype::bfloat16;
#ifdef __STDCPP_FLOAT16_T__
    } else if constexpr (std::is_same_v<T, std::float16_t>) {
        return dtype::float16;
#endif
#ifdef __STDCPP_BFLOAT16_T__
    } else if constexpr (std::is_same_v<T, std::bfloat16_t>) {
        return dtype::bfloat16;
#endif
    } else if constexpr ((std::is_class_v<T> || std::is_enum_v<T> || std::is_same_v<T, bool>)&&!is_view<T>) {
        return static_cast<dtype>(sizeof(T) <= MUSTER_ELEMENT_BYTES_MAX ? MUSTER_ELEMENT + static_cast<std::int32_t>(sizeof(T))
                                                                        : -1);
    } else {
        return static_cast<dtype>(-1);
    }
}

}  // namespace basic
/// @endcond

/// Which element type a C++ type is. Integers, float, double, muster::float16 and bfloat16, std::byte, and in C++23
/// std::float16_t and std::bfloat16_t have an element type of their own. `char` is dtype::uint8 on every processor. Other
/// classes and enumerations, of up to MUSTER_ELEMENT_BYTES_MAX bytes, travel as their bytes, and no element is ever split. They
/// must be trivially copyable, and only functions reduce them.
///
/// Specialize it for a type of your own that has the same bits as one of these types:
/// `template <> struct muster::dtype_of<my::half> { static constexpr auto value = muster::dtype::float16; };`
template <class T> struct dtype_of {
    /// The element type; a negative number where `T` is none.
    static constexpr dtype value = basic::usual_dtype<T>();
};

/// How values of type `T` are combined: one of muster::op, or what cluster::make_op gave out.
template <class T> class reduction {
public:
    /// A built-in one.
    constexpr reduction(op built_in) noexcept : number_(static_cast<std::int32_t>(built_in)) {
        static_assert(static_cast<std::int32_t>(dtype_of<T>::value) < MUSTER_ELEMENT, "only a function can reduce this type");
    }
    /// One that the C API gave out (muster_op_create). Its function must be one for elements of type `T`.
    static constexpr reduction from_number(std::int32_t number) noexcept { return reduction(number, nullptr); }
    /// Its number in the C API.
    constexpr std::int32_t number() const noexcept { return number_; }

private:
    constexpr reduction(std::int32_t number, std::nullptr_t) noexcept : number_(number) {}

    std::int32_t number_;
};

/// How many elements each rank of a group has, in order of rank, and where these begin in the buffer. Without displacements the
/// parts follow each other. This object only points to the lists. A call needs them until it returns, also a call that does not
/// wait.
class parts {
public:
    /// So many elements of each rank, one after another.
    template <class Counts, std::enable_if_t<std::is_convertible_v<const Counts &, span<const std::size_t>>, int> = 0>
    parts(const Counts &counts) noexcept : counts_(counts) {}
    /// So many elements of each rank, from these places on.
    parts(span<const std::size_t> counts, span<const std::size_t> displacements) noexcept
        : counts_(counts), displacements_(displacements), are_placed_(true) {}

    /// How many elements each rank has.
    span<const std::size_t> counts() const noexcept { return counts_; }
    /// Whether there are displacements. Otherwise the parts follow each other.
    bool are_placed() const noexcept { return are_placed_; }
    /// Where the parts begin, if there are displacements.
    span<const std::size_t> displacements() const noexcept { return displacements_; }

private:
    span<const std::size_t> counts_;
    span<const std::size_t> displacements_;
    bool are_placed_ = false;
};

/// A key or a value of the store: whatever converts to std::string_view, except 0 and nullptr, which std::string_view would
/// take for the address of a text.
class store_bytes : public std::string_view {
public:
    /// No bytes.
    constexpr store_bytes() noexcept = default;
    /// So many bytes.
    constexpr store_bytes(const char *first, std::size_t length) noexcept : std::string_view(first, length) {}
    /// A text.
    template <class Text,
              std::enable_if_t<std::is_convertible_v<Text &&, std::string_view> &&
                                   !std::is_same_v<std::remove_cv_t<std::remove_reference_t<Text>>, store_bytes> &&
                                   !std::is_null_pointer_v<std::remove_cv_t<std::remove_reference_t<Text>>>,
                               int> = 0>
    constexpr store_bytes(Text &&text) : std::string_view(static_cast<std::string_view>(static_cast<Text &&>(text))) {}
#if __cplusplus >= 202002L
    /// The bytes between two places.
    template <std::contiguous_iterator First, std::sized_sentinel_for<First> Last>
        requires(std::is_same_v<std::iter_value_t<First>, char> && !std::is_convertible_v<Last, std::size_t>)
    constexpr store_bytes(First first, Last last) : std::string_view(first, last) {}
#endif
};

// ------------------------------------------------------------------------------------------------- What follows the mode

#ifdef MUSTER_NO_EXCEPTIONS
/// Files that are compiled with MUSTER_NO_EXCEPTIONS have the names below from here, so that they can be linked with others.
inline namespace returning {
/// What a call gives: a result.
template <class T> using outcome = result<T>;
#else
/// Files that are compiled with exceptions have the names below from here, so that they can be linked with others.
inline namespace throwing {
/// What a call gives: its value; a failure is thrown.
template <class T> using outcome = T;
#endif

/// @cond internal
namespace detail {

using namespace muster::basic;

#ifdef MUSTER_NO_EXCEPTIONS
template <class T> result<T> out(result<T> &&given) { return std::move(given); }
#else
inline void out(result<void> &&given) {
    if (!given) {
        throw given.error();
    }
}
template <class T> T out(result<T> &&given) {
    if (!given.has_value()) {
        throw given.error();
    }
    return std::move(given).value();
}
#endif

inline error failed(muster_status_t code) {
    const char *sentence = muster_last_error();
    return error(static_cast<status>(code), *sentence != 0 ? sentence : muster_status_string(code));
}
inline error invalid(const std::string &sentence) { return error(status::invalid, sentence); }

inline result<void> checked(muster_status_t code) { return code < 0 ? result<void>(failed(code)) : result<void>(); }
template <class T> result<T> valued(muster_status_t code, T value) {
    return code < 0 ? result<T>(failed(code)) : result<T>(std::move(value));
}
// Whether a receive has failed because its message did not fit, and has described the message; and the error with that
// description.
inline bool misfits(muster_status_t code, const received *told) {
    return code == MUSTER_ERR_MISMATCH && told != nullptr && told->source >= 0;
}
inline error misfitting(muster_status_t code, const received &told) {
    const error why = failed(code);
    return {why.code(), why.what(), told};
}
// How a receive describes its message, also a message that did not fit.
inline result<received> receipt(muster_status_t code, const received &told) {
    return misfits(code, &told) ? result<received>(misfitting(code, told)) : valued(code, told);
}
// A number, or a status that is negative.
template <class T> result<T> number(T answer) {
    return answer < 0 ? result<T>(failed(static_cast<muster_status_t>(answer))) : result<T>(answer);
}
// How long to wait, in milliseconds, as std takes durations: a negative one is 0, and a part of a millisecond counts as a whole
// one. A time that milliseconds cannot hold means no limit.
template <class Rep, class Period> std::int64_t waiting(std::chrono::duration<Rep, Period> timeout) {
    using wide = std::chrono::duration<long double, std::milli>;
    const wide exact(timeout);
    if (!(exact > wide::zero())) {
        return 0;
    }
    return exact >= wide(no_limit) ? no_limit.count() : std::chrono::ceil<milliseconds>(exact).count();
}
// Whether an operation has ended.
inline result<bool> ended(muster_status_t code) { return valued(code, code != MUSTER_IN_PROGRESS); }
// The value; nothing if the status says that there is none.
template <class T> result<std::optional<T>> found(muster_status_t code, T value) {
    return code == MUSTER_ERR_NOT_FOUND ? result<std::optional<T>>(std::nullopt)
                                        : valued(code, std::optional<T>(std::move(value)));
}

// A text that the library copies out, however long it has become meanwhile.
template <class Ask> result<std::string> text(Ask ask) {
    std::string all;
    std::size_t needed = 0;
    muster_status_t code = ask(static_cast<char *>(nullptr), std::size_t{0}, &needed);
    while (code == MUSTER_OK && needed > all.size()) {
        all.resize(needed);
        code = ask(all.data(), all.size(), &needed);
        if (code == MUSTER_OK) {
            all.resize(needed - 1);  // without the zero byte
            return all;
        }
        code = code == MUSTER_ERR_LIMIT ? MUSTER_OK : code;
    }
    return code == MUSTER_OK ? result<std::string>(std::string()) : result<std::string>(failed(code));
}

// A text that C can take: nothing may end it early.
inline result<void> whole(const char *what, const std::string &given) {
    const std::size_t zero = given.find('\0');
    return zero == std::string::npos
               ? result<void>()
               : result<void>(invalid(std::string(what) + " \"" + given.c_str() + "\" goes on behind a zero byte, at " +
                                      std::to_string(zero) + ": it must have none"));
}

template <auto Free> struct freeing {
    template <class Handle> void operator()(Handle *handle) const noexcept { Free(handle); }
};
template <class Handle, auto Free> using owner = std::unique_ptr<Handle, freeing<Free>>;

template <class T> constexpr std::int32_t element_type() {
    constexpr dtype type = dtype_of<std::remove_cv_t<T>>::value;
    static_assert(static_cast<std::int32_t>(type) >= 0, "this is no element type: see muster::dtype_of");
    static_assert(std::is_trivially_copyable_v<T>, "elements travel as bytes: they must be trivially copyable");
    return static_cast<std::int32_t>(type);
}

// A buffer as the C functions take it.
template <class T> struct view {
    T *data;
    std::size_t size;
    const char *name;
    std::int32_t type = element_type<T>();
};
template <class Buffer> view<const element_t<const Buffer>> readable(const char *name, const Buffer &buffer) {
    return {std::data(buffer), static_cast<std::size_t>(std::size(buffer)), name};
}
template <class Buffer>
view<const element_t<Buffer>> read_later(const char *name, const std::remove_reference_t<Buffer> &buffer) {
    static_assert(lends<Buffer>, "the operation goes on: its buffer must not be a temporary");
    return {std::data(buffer), static_cast<std::size_t>(std::size(buffer)), name};
}
template <class Buffer> view<element_t<Buffer>> writable(const char *name, std::remove_reference_t<Buffer> &buffer) {
    static_assert(!std::is_const_v<element_t<Buffer>>, "the result is written here: this buffer must not be constant");
    static_assert(lends<Buffer>, "the result is written here: this buffer must not be a temporary");
    return {std::data(buffer), static_cast<std::size_t>(std::size(buffer)), name};
}

// The two buffers of a call, of a blocking one and of one that goes on.
template <class In, class Out> struct both {
    static_assert(std::is_same_v<std::remove_cv_t<element_t<In>>, std::remove_cv_t<element_t<Out>>>,
                  "`in` and `out` must have the same element type");
    view<const element_t<const std::remove_reference_t<In>>> in;
    view<element_t<Out>> out;
};
template <class In, class Out> both<In, Out> now(const In &in, std::remove_reference_t<Out> &out) {
    return {readable("in", in), writable<Out>("out", out)};
}
template <class In, class Out> both<In, Out> later(const std::remove_reference_t<In> &in, std::remove_reference_t<Out> &out) {
    return {read_later<In>("in", in), writable<Out>("out", out)};
}
// A list of buffers, which have the elements of `Like`.
template <class Pointer> struct list {
    std::vector<Pointer> data;
    std::vector<std::size_t> sizes;
};
template <class Like, class Pointer, class Buffers> list<Pointer> listed(Buffers &buffers) {
    static_assert(is_buffer<element_t<Buffers>>::value, "this is no list of buffers");
    list<Pointer> all;
    const auto count = static_cast<std::size_t>(std::size(buffers));
    for (std::size_t at = 0; at < count; at++) {
        auto &buffer = std::data(buffers)[at];
        static_assert(std::is_same_v<std::remove_cv_t<element_t<decltype(buffer)>>, std::remove_cv_t<element_t<Like>>>,
                      "the buffers must have the same element type");
        all.data.push_back(std::data(buffer));
        all.sizes.push_back(static_cast<std::size_t>(std::size(buffer)));
    }
    return all;
}
template <class Like, class Buffers> list<void *> writable_list(Buffers &buffers) { return listed<Like, void *>(buffers); }
template <class Like, class Buffers> list<const void *> readable_list(const Buffers &buffers) {
    return listed<Like, const void *>(buffers);
}

template <class In, class Out> std::string lengths(const char *call, const In &in, const Out &out) {
    return std::string(call) + ": `" + in.name + "` has " + std::to_string(in.size) + " elements and `" + out.name + "` " +
           std::to_string(out.size);
}

// Why these parts do not fit a buffer in a group of so many ranks, as a sentence; empty if they do.
inline std::string misfit(const parts &of, const char *buffer, std::size_t length, std::size_t ranks) {
    const span<const std::size_t> counts = of.counts(), places = of.displacements();
    if (counts.size() != ranks || (of.are_placed() && places.size() != ranks)) {
        return std::string("the parts of `") + buffer + "` list " +
               std::to_string(counts.size() != ranks ? counts.size() : places.size()) + " numbers: the group has " +
               std::to_string(ranks) + " ranks";
    }
    std::size_t begin = 0;
    for (std::size_t rank = 0; rank < ranks; rank++) {
        begin = of.are_placed() ? places[rank] : begin;
        const std::size_t count = counts[rank];
        if (count > 0 && (count > length || begin > length - count)) {
            return std::string("the part of rank ") + std::to_string(rank) + " in `" + buffer + "` is " + std::to_string(count) +
                   " elements from element " + std::to_string(begin) + " on: there are " + std::to_string(length);
        }
        begin += count;
    }
    return "";
}

// One element by itself.
template <class T, class = void> struct is_value : std::false_type {};
template <class T>
struct is_value<T, std::enable_if_t<!is_buffer<T>::value>>
    : std::bool_constant<(static_cast<std::int32_t>(dtype_of<T>::value) >= 0)> {};
template <class T> using when_value = std::enable_if_t<is_value<T>::value, int>;

template <class T> struct as_it_is { using type = reduction<T>; };
// Not deduced: what is passed for it converts.
template <class T> using reduction_with = typename as_it_is<T>::type;
// A function of two values that a call is given.
template <class Combine, class T>
inline constexpr bool combines =
    std::is_invocable_r_v<T, const Combine &, const T &, const T &> && !std::is_convertible_v<const Combine &, reduction<T>>;
template <class Combine, class Buffer>
using when_combines = std::enable_if_t<combines<Combine, std::remove_cv_t<element_t<Buffer>>>, int>;
// Whether such elements may lie where the library has them.
template <class T> inline constexpr bool lies_anywhere = alignof(T) <= alignof(std::max_align_t);
// Applies it to many, as the library asks for it.
template <class T, class Combine> void fold(const void *in, void *inout, std::size_t count, std::int32_t, void *ctx) noexcept {
    static_assert(std::is_nothrow_invocable_v<const Combine &, const T &, const T &>, "the function must be noexcept");
    static_assert(lies_anywhere<T>, "elements lie as malloc aligns: a function cannot have them aligned beyond that");
    const Combine &combine = *static_cast<const Combine *>(ctx);
    const T *low = static_cast<const T *>(in);
    T *high = static_cast<T *>(inout);
    for (std::size_t at = 0; at < count; at++) {
        high[at] = static_cast<T>(combine(low[at], high[at]));
    }
}
// How it is applied, as an argument of the C API. A null pointer to a function stays one: the call says so.
template <class T, class Combine> muster_reduce_fn folding(const Combine &combine) noexcept {
    if constexpr (std::is_pointer_v<Combine>) {
        return combine != nullptr ? fold<T, Combine> : nullptr;
    } else {
        return fold<T, Combine>;
    }
}
// The function as an argument of the C API, which does not write to it.
template <class Combine> void *context_of(const Combine &combine) noexcept {
    return const_cast<void *>(static_cast<const void *>(std::addressof(combine)));
}

template <class Buffer> using reduction_of = reduction<std::remove_cv_t<element_t<Buffer>>>;

}  // namespace detail
/// @endcond

// ------------------------------------------------------------------------------------------------------------- Settings

/// Settings as key and value; docs/settings.md lists the keys. Belongs to one thread at a time.
class config {
public:
    /// Empty settings: only what is set counts, and defaults.
    static outcome<config> create() { return detail::out(made()); }

    /// The settings that stand in the environment (MUSTER_..., MS_..., another launcher's).
    static outcome<config> from_environment() {
        result<config> settings = made();
        if (settings) {
            result<void> loaded = detail::checked(muster_config_load_env(settings->get()));
            if (!loaded) {
                settings = loaded.error();
            }
        }
        return detail::out(std::move(settings));
    }

    /// Takes the settings of the environment, too. What was set stays.
    outcome<void> load_environment() { return detail::out(detail::checked(muster_config_load_env(get()))); }

    /// Sets one setting, which beats every other source. An unknown key, or a value that does not fit, is `status::config` at
    /// once.
    outcome<void> set(const std::string &key, const std::string &value) { return detail::out(set_text(key, value)); }
    /// Sets one setting to a whole number.
    template <class Number, std::enable_if_t<std::is_integral_v<Number> && !std::is_same_v<Number, char>, int> = 0>
    outcome<void> set(const std::string &key, Number value) {
        if constexpr (std::is_same_v<Number, bool>) {
            return detail::out(set_text(key, value ? "1" : "0"));
        } else {
            return detail::out(set_text(key, std::to_string(value)));
        }
    }

    /// Sets a function that every waiting call asks, soon after the call has begun to sleep, and every 50 ms from then on;
    /// null means no function. If the function returns true, the call fails with `status::interrupted`. The function counts for
    /// the clusters and schedulers that are made of this from now on, and for init itself. It runs on any thread, and must
    /// neither throw nor make a call that waits.
    outcome<void> set_interrupt(bool (*should_end)() noexcept) {
        const auto ask = [](void *ctx) noexcept -> std::int32_t { return reinterpret_cast<bool (*)() noexcept>(ctx)() ? 1 : 0; };
        return detail::out(detail::checked(
            muster_config_set_interrupt(get(), should_end == nullptr ? nullptr : +ask, reinterpret_cast<void *>(should_end))));
    }

    /// The value that is in effect for a key, defaults included; nothing if the key has no value. Never gives a secret out.
    outcome<std::optional<std::string>> get(const std::string &key) const {
        if (const result<void> fits = detail::whole("the key", key); !fits) {
            return detail::out(result<std::optional<std::string>>(fits.error()));
        }
        result<std::string> value = detail::text([&](char *buf, std::size_t cap, std::size_t *needed) {
            return muster_config_get(get(), key.c_str(), buf, cap, needed);
        });
        if (!value && value.error().code() == status::not_found) {
            return detail::out(result<std::optional<std::string>>(std::nullopt));
        }
        return detail::out(value ? result<std::optional<std::string>>(std::move(*value))
                                 : result<std::optional<std::string>>(value.error()));
    }

    /// The handle of the C API; this object goes on owning it.
    muster_config_t *get() const noexcept { return handle_.get(); }

private:
    explicit config(muster_config_t *handle) noexcept : handle_(handle) {}

    static result<config> made() {
        muster_config_t *handle = nullptr;
        const muster_status_t code = muster_config_new(MUSTER_HEADER_VERSION, &handle);
        return detail::valued(code, config(handle));
    }
    result<void> set_text(const std::string &key, const std::string &value) {
        result<void> whole = detail::whole("the key", key);
        whole = whole ? detail::whole("the value", value) : whole;
        return whole ? detail::checked(muster_config_set(get(), key.c_str(), value.c_str())) : whole;
    }

    detail::owner<muster_config_t, muster_config_free> handle_;
};

/// Takes a line of the log: its level, the speaker, and the line.
using log_function = std::function<void(log_level level, const char *target, const char *message)>;

/// @cond internal
namespace detail {

inline void log_line(std::int32_t level, const char *target, const char *message, void *ctx) noexcept {
    (*static_cast<const log_function *>(ctx))(static_cast<log_level>(level), target, message);
}

inline result<void> set_log(log_level level, log_function fn) {
    static std::mutex turn;
    static log_function *held = nullptr;  // never freed at the end of the program: lines may come until then
    const std::lock_guard<std::mutex> mine(turn);
    auto next = fn ? std::make_unique<log_function>(std::move(fn)) : nullptr;
    result<void> set = checked(muster_set_log_callback(static_cast<std::int32_t>(level), next ? log_line : nullptr, next.get()));
    if (set) {
        delete held;  // no call to it is running any more
        held = next.release();
    }
    return set;
}

}  // namespace detail
/// @endcond

/// Sends the log of all clusters of this process, up to `level`, to `fn` instead of standard error; an empty function sends it
/// to standard error again. `fn` runs on a thread of the library, one line at a time. It must neither throw nor call this
/// library.
inline outcome<void> set_log_callback(log_level level, log_function fn) {
    return detail::out(detail::set_log(level, std::move(fn)));
}

// ------------------------------------------------------------------------------------------------------------- Requests

/// An operation that was started and goes on by itself. The calls whose names begin with `i` return it. Its buffers are in use
/// until it has ended. Belongs to one thread at a time.
///
/// **Its destructor gives the operation up.** If the operation still goes on, the destructor cancels it and waits until its
/// buffers are free. That takes a fraction of a second, and never the group's time-out. Cancelling a collective revokes its
/// group, so that the other ranks learn of it at once, too; a message ends alone. A message that has met its other half is not
/// cancelled: it ends when its bytes have passed, or when its peer is lost. Only the receiving rank knows whether a send
/// of more than 64 KiB has met its receive: the destructor waits until that rank says so, or is lost. So an exception can leave a function with
/// requests without a long wait, and no buffer that is gone is touched. To let the operation end, call wait().
class [[nodiscard]] request {
public:
    /// No operation.
    request() noexcept = default;
    /// Takes the operation over.
    request(request &&other) noexcept
        : handle_(std::exchange(other.handle_, nullptr)), received_(std::move(other.received_)), kept_(std::move(other.kept_)) {}
    /// Gives up its own operation, as the destructor does, and takes the other's over.
    request &operator=(request &&other) noexcept {
        if (this != &other) {
            give_up();
            handle_ = std::exchange(other.handle_, nullptr);
            received_ = std::move(other.received_);
            kept_ = std::move(other.kept_);
        }
        return *this;
    }
    request(const request &) = delete;
    request &operator=(const request &) = delete;
    /// Gives the operation up if it has not ended: see above.
    ~request() { give_up(); }

    /// Takes over a request of the C API.
    static request adopt(muster_request_t *handle) noexcept { return request(handle, nullptr); }

    /// Whether there is an operation, ended or not.
    explicit operator bool() const noexcept { return handle_ != nullptr; }

    /// Whether the operation has ended well; its error if it has failed. Never waits for the end.
    [[nodiscard]] outcome<bool> test() { return detail::out(ended(muster_request_test(handle_))); }
    /// Waits until the operation has ended, at most for its group's time-out. If the wait is interrupted, the operation goes
    /// on.
    outcome<void> wait() {
        const result<bool> told = ended(muster_request_wait(handle_, usual_timeout.count()));
        return detail::out(told.has_value() ? result<void>() : result<void>(told.error()));
    }
    /// Waits for so long at most; a negative time is 0, as in std. Says whether the operation has ended. If not, the program
    /// may wait again.
    [[nodiscard]] outcome<bool> wait_for(milliseconds timeout) { return wait_for<>(timeout); }
    /// The same for any duration; a part of a millisecond counts as a whole one.
    template <class Rep = milliseconds::rep, class Period = milliseconds::period>
    [[nodiscard]] outcome<bool> wait_for(std::chrono::duration<Rep, Period> timeout) {
        return detail::out(ended(muster_request_wait(handle_, detail::waiting(timeout))));
    }
    /// Cancels the operation; see muster_request_cancel. The program must still wait for its end, or destroy this object.
    outcome<void> cancel() { return detail::out(detail::checked(muster_request_cancel(handle_))); }

    /// What a receive got; after `status::mismatch` the message that did not fit, with its true length. For another operation,
    /// or before the end, it is `status::state`.
    outcome<muster::received> received() const {
        if (received_ && received_->source < 0 && handle_ != nullptr) {
            static_cast<void>(muster_request_test(handle_));  // it is told only to those that ask, or wait
        }
        return detail::out(received_ && received_->source >= 0
                               ? result<muster::received>(*received_)
                               : result<muster::received>(error(status::state, "the request has received nothing yet")));
    }

    /// Has `fn` called once, on a thread of the library, when the operation has ended (at once if it has ended already): with
    /// `status::ok` or the operation's error. `fn` must not throw; see muster_request_notify for what it may call. The
    /// destructor waits until it has returned, unless the function itself runs the destructor.
    outcome<void> notify(std::function<void(status)> fn) {
        auto kept = std::make_unique<std::function<void(status)>>(std::move(fn));
        const muster_notify_fn tell = [](muster_status_t code, void *ctx) noexcept {
            const std::unique_ptr<std::function<void(status)>> once(static_cast<std::function<void(status)> *>(ctx));
            (*once)(static_cast<status>(code));
        };
        result<void> noted = detail::checked(muster_request_notify(handle_, *kept ? tell : nullptr, kept.get()));
        if (noted) {
            static_cast<void>(kept.release());  // it is called once, and then frees itself
        }
        return detail::out(std::move(noted));
    }
    /// A descriptor that can be read (poll, epoll) once the operation has ended. It belongs to the library: only watch it, and
    /// take it out of an epoll set before this object is destroyed.
    outcome<int> descriptor() { return detail::out(detail::number(muster_request_descriptor(handle_))); }

    /// The handle of the C API; this object goes on owning it.
    muster_request_t *get() const noexcept { return handle_; }

private:
    friend class group;
    request(muster_request_t *handle, std::unique_ptr<muster::received> place,
            std::shared_ptr<const void> kept = nullptr) noexcept
        : handle_(handle), received_(std::move(place)), kept_(std::move(kept)) {}

    // Whether the operation has ended; the error of a receive has the message that did not fit.
    result<bool> ended(muster_status_t code) const {
        return detail::misfits(code, received_.get()) ? result<bool>(detail::misfitting(code, *received_)) : detail::ended(code);
    }

    void give_up() noexcept {
        if (handle_ != nullptr && muster_request_test(handle_) == MUSTER_IN_PROGRESS) {
            muster_request_cancel(handle_);
        }
        muster_request_free(handle_);
        handle_ = nullptr;
    }

    muster_request_t *handle_ = nullptr;
    std::unique_ptr<muster::received> received_;  // the library writes it, wherever this object is moved
    std::shared_ptr<const void> kept_;            // what the operation calls
};

/// @cond internal
namespace detail {

inline std::vector<muster_request_t *> handles(span<const request> requests) {
    std::vector<muster_request_t *> all;
    for (const request &one : requests) {
        all.push_back(one.get());
    }
    return all;
}

}  // namespace detail
/// @endcond

/// Waits until one of these requests has ended, and gives its place, also if it has failed: its `test()` tells. Empty requests
/// are skipped. Gives nothing if no request has ended in time; a negative time is 0. If all are empty it is
/// `status::not_found`.
template <class Rep = milliseconds::rep, class Period = milliseconds::period>
outcome<std::optional<std::size_t>> wait_any(span<const request> requests,
                                             std::chrono::duration<Rep, Period> timeout = no_limit) {
    const std::vector<muster_request_t *> all = detail::handles(requests);
    std::size_t index = all.size();
    const muster_status_t code = muster_request_wait_any(all.data(), all.size(), detail::waiting(timeout), &index);
    if (index < all.size()) {
        return detail::out(result<std::optional<std::size_t>>(index));
    }
    return detail::out(detail::valued(code, std::optional<std::size_t>()));
}

/// Waits until all of these requests have ended, and then fails with the error of the first one that has failed. Returns
/// whether all have ended in time; a negative time is 0. Empty requests are skipped.
template <class Rep = milliseconds::rep, class Period = milliseconds::period>
outcome<bool> wait_all(span<const request> requests, std::chrono::duration<Rep, Period> timeout = no_limit) {
    const std::vector<muster_request_t *> all = detail::handles(requests);
    return detail::out(detail::ended(muster_request_wait_all(all.data(), all.size(), detail::waiting(timeout))));
}

// --------------------------------------------------------------------------------------------------------------- Groups

/// An ordered set of nodes with its own sequence of collectives. This object only points to it, and may be copied: the cluster's
/// own groups live as long as the cluster, a group that the program made as long as its owned_group.
///
/// All ranks call a group's collectives in the same order, with the same counts and element types. A call that fails while it
/// runs revokes the group: all ranks' calls on it give the same first cause. A call with buffers that do not fit has not begun.
///
/// `in` and `out` must not overlap, unless a function says that it works in place. They have the same element type.
class group {
public:
    /// No group.
    constexpr group() noexcept = default;
    /// A group of the C API.
    explicit constexpr group(muster_group_t *handle) noexcept : handle_(handle) {}
    /// Deleted: a temporary owned_group frees its group at the end of the statement. Keep the owned_group.
    group(const class owned_group &&) = delete;
    /// Deleted: see above.
    group &operator=(const owned_group &&) = delete;

    /// Whether there is a group.
    explicit constexpr operator bool() const noexcept { return handle_ != nullptr; }
    /// The handle of the C API.
    constexpr muster_group_t *get() const noexcept { return handle_; }

    /// This process's rank in it; `status::not_found` if it is no member.
    outcome<std::int32_t> rank() const { return detail::out(detail::number(muster_group_rank(handle_))); }
    /// How many members it has.
    outcome<std::int32_t> size() const { return detail::out(detail::number(muster_group_size(handle_))); }
    /// The rank among all workers of the member with this rank.
    outcome<std::int32_t> to_world(std::int32_t rank) const {
        return detail::out(detail::number(muster_group_to_world(handle_, rank)));
    }
    /// The rank in this group of the worker with this rank; `status::not_found` if the worker is no member.
    outcome<std::int32_t> from_world(std::int32_t world_rank) const {
        return detail::out(detail::number(muster_group_from_world(handle_, world_rank)));
    }
    /// Describes a member. In clusters of more than 1,024 nodes this may wait for the scheduler.
    outcome<muster::member> member(std::int32_t rank) const {
        muster::member found{};
        const muster_status_t code = muster_group_member(handle_, rank, &found, sizeof found);
        return detail::out(detail::valued(code, found));
    }
    /// The first cause for which the group is over; nothing while it holds.
    outcome<std::optional<muster::failure>> failure() const {
        muster::failure cause{};
        const muster_status_t code = muster_group_failure(handle_, &cause, sizeof cause);
        return detail::out(detail::found(code, cause));
    }
    /// How long an operation on it may take from now on, in this process.
    outcome<void> set_timeout(milliseconds timeout) const {
        return detail::out(detail::checked(muster_group_set_timeout(handle_, timeout.count())));
    }

    /// Makes a group of these ranks of this group. All members of this group call it with the same list. Members that are not
    /// in the list get an empty group.
    outcome<class owned_group> create(span<const std::int32_t> ranks) const;
    /// Makes a group of all members that pass the same colour, in order of key, then of rank. A member that passes a negative
    /// colour gets an empty group.
    outcome<class owned_group> split(std::int32_t colour, std::int32_t key) const;

    // ------------------------------------------------------------------------------------------------- Collectives

    /// Returns when every member has called it.
    outcome<void> barrier() const { return call({}, muster_barrier); }
    /// As barrier, without waiting.
    outcome<request> ibarrier() const { return start({}, muster_ibarrier); }

    /// Everyone gets the root's elements. All ranks pass the same number of elements.
    template <class Buffer, basic::when_buffer<Buffer> = 0>
    outcome<void> broadcast(Buffer &&buffer, std::int32_t root = 0) const {
        const auto b = detail::writable<Buffer>("buffer", buffer);
        return call({}, muster_broadcast, b.data, b.size, b.type, root);
    }
    /// Gives everyone the root's value.
    template <class T, detail::when_value<T> = 0> [[nodiscard]] outcome<T> broadcast(T value, std::int32_t root = 0) const {
        const muster_status_t code = muster_broadcast(handle_, &value, 1, detail::element_type<T>(), root);
        return detail::out(detail::valued(code, value));
    }
    /// As broadcast, without waiting.
    template <class Buffer, basic::when_buffer<Buffer> = 0>
    outcome<request> ibroadcast(Buffer &&buffer, std::int32_t root = 0) const {
        const auto b = detail::writable<Buffer>("buffer", buffer);
        return start({}, muster_ibroadcast, b.data, b.size, b.type, root);
    }

    /// Everyone gets all ranks' elements combined, element by element, in place.
    template <class Buffer, basic::when_buffer<Buffer> = 0>
    outcome<void> allreduce(Buffer &&inout, detail::reduction_of<Buffer> with = op::sum) const {
        const auto b = detail::writable<Buffer>("inout", inout);
        return call({}, muster_allreduce, b.data, b.data, b.size, b.type, with.number());
    }
    /// Everyone gets all ranks' elements of `in` combined. `out` is as long as `in`, and may be the same.
    template <class In, class Out, basic::when_buffers<In, Out> = 0>
    outcome<void> allreduce(const In &in, Out &&out, detail::reduction_of<Out> with = op::sum) const {
        const auto [i, o] = detail::now<In, Out>(in, out);
        return call(alike("allreduce", i, o), muster_allreduce, i.data, o.data, o.size, o.type, with.number());
    }
    /// All ranks' values combined.
    template <class T, detail::when_value<T> = 0>
    [[nodiscard]] outcome<T> allreduce(T value, detail::reduction_with<T> with = op::sum) const {
        const muster_status_t code = muster_allreduce(handle_, &value, &value, 1, detail::element_type<T>(), with.number());
        return detail::out(detail::valued(code, value));
    }
    /// As allreduce, without waiting.
    template <class Buffer, basic::when_buffer<Buffer> = 0>
    outcome<request> iallreduce(Buffer &&inout, detail::reduction_of<Buffer> with = op::sum) const {
        const auto b = detail::writable<Buffer>("inout", inout);
        return start({}, muster_iallreduce, b.data, b.data, b.size, b.type, with.number());
    }
    /// As allreduce, without waiting.
    template <class In, class Out, basic::when_buffers<In, Out> = 0>
    outcome<request> iallreduce(In &&in, Out &&out, detail::reduction_of<Out> with = op::sum) const {
        const auto [i, o] = detail::later<In, Out>(in, out);
        return start(alike("iallreduce", i, o), muster_iallreduce, i.data, o.data, o.size, o.type, with.number());
    }

    /// Everyone gets the exact sum of all ranks' addends, rounded once: see muster_allreduce_addends. `in` holds this rank's
    /// addends, each as long as `out`, one after another; it may be empty. `out` may be where `in` begins.
    template <class In, class Out, basic::when_buffers<In, Out> = 0>
    outcome<void> allreduce_addends(const In &in, Out &&out) const {
        const auto [i, o] = detail::now<In, Out>(in, out);
        const std::size_t addends = o.size == 0 ? 0 : i.size / o.size;
        return call(multiple("allreduce_addends", i, o), muster_allreduce_addends, i.data, addends, o.data, o.size, o.type);
    }
    /// As allreduce_addends, without waiting.
    template <class In, class Out, basic::when_buffers<In, Out> = 0>
    outcome<request> iallreduce_addends(In &&in, Out &&out) const {
        const auto [i, o] = detail::later<In, Out>(in, out);
        const std::size_t addends = o.size == 0 ? 0 : i.size / o.size;
        return start(multiple("iallreduce_addends", i, o), muster_iallreduce_addends, i.data, addends, o.data, o.size, o.type);
    }

    /// As allreduce, with a function of two values in place of an operation: see muster_allreduce_with. The value of lower ranks
    /// comes first. It must be noexcept, and must not call this library. Pass `commutative` false if the two may not be
    /// exchanged; all ranks must pass the same value.
    template <class In, class Out, class Combine, basic::when_buffers<In, Out> = 0, detail::when_combines<Combine, Out> = 0>
    outcome<void> allreduce(const In &in, Out &&out, Combine combine, bool commutative = true) const {
        using T = std::remove_cv_t<basic::element_t<Out>>;
        const auto [i, o] = detail::now<In, Out>(in, out);
        return call(alike("allreduce", i, o), muster_allreduce_with, i.data, o.data, o.size, o.type, detail::folding<T>(combine),
                    detail::context_of(combine), commutative ? 1 : 0);
    }
    /// As that allreduce, without waiting. The request keeps the function.
    template <class In, class Out, class Combine, basic::when_buffers<In, Out> = 0, detail::when_combines<Combine, Out> = 0>
    outcome<request> iallreduce(In &&in, Out &&out, Combine combine, bool commutative = true) const {
        using T = std::remove_cv_t<basic::element_t<Out>>;
        const auto [i, o] = detail::later<In, Out>(in, out);
        auto kept = std::make_shared<const Combine>(std::move(combine));
        return start_keeping(kept, alike("iallreduce", i, o), muster_iallreduce_with, i.data, o.data, o.size, o.type,
                             detail::folding<T>(*kept), detail::context_of(*kept), commutative ? 1 : 0);
    }
    /// As that allreduce, in place.
    template <class Buffer, class Combine, basic::when_buffer<Buffer> = 0, detail::when_combines<Combine, Buffer> = 0>
    outcome<void> allreduce(Buffer &&inout, Combine combine, bool commutative = true) const {
        return allreduce(inout, std::forward<Buffer>(inout), std::move(combine), commutative);
    }
    /// As that allreduce, in place and without waiting.
    template <class Buffer, class Combine, basic::when_buffer<Buffer> = 0, detail::when_combines<Combine, Buffer> = 0>
    outcome<request> iallreduce(Buffer &&inout, Combine combine, bool commutative = true) const {
        return iallreduce(inout, std::forward<Buffer>(inout), std::move(combine), commutative);
    }
    /// All ranks' values combined by this function.
    template <class T, class Combine, detail::when_value<T> = 0, std::enable_if_t<detail::combines<Combine, T>, int> = 0>
    [[nodiscard]] outcome<T> allreduce(T value, Combine combine, bool commutative = true) const {
        const muster_status_t code =
            muster_allreduce_with(handle_, &value, &value, 1, detail::element_type<T>(), detail::folding<T>(combine),
                                  detail::context_of(combine), commutative ? 1 : 0);
        return detail::out(detail::valued(code, value));
    }

    /// The root gets all ranks' elements of `in` combined. Its `out` is as long as `in`, and may be the same. On other ranks
    /// `out` is ignored, and may be empty.
    template <class In, class Out, basic::when_buffers<In, Out> = 0>
    outcome<void> reduce(const In &in, Out &&out, std::int32_t root, detail::reduction_of<Out> with = op::sum) const {
        const auto [i, o] = detail::now<In, Out>(in, out);
        return call(at(root) ? alike("reduce", i, o) : "", muster_reduce, i.data, o.data, i.size, o.type, with.number(), root);
    }
    /// As reduce, without waiting.
    template <class In, class Out, basic::when_buffers<In, Out> = 0>
    outcome<request> ireduce(In &&in, Out &&out, std::int32_t root, detail::reduction_of<Out> with = op::sum) const {
        const auto [i, o] = detail::later<In, Out>(in, out);
        return start(at(root) ? alike("ireduce", i, o) : "", muster_ireduce, i.data, o.data, i.size, o.type, with.number(), root);
    }

    /// As reduce, with a function of two values in place of an operation: see muster_reduce_with.
    template <class In, class Out, class Combine, basic::when_buffers<In, Out> = 0, detail::when_combines<Combine, Out> = 0>
    outcome<void> reduce(const In &in, Out &&out, std::int32_t root, Combine combine, bool commutative = true) const {
        using T = std::remove_cv_t<basic::element_t<Out>>;
        const auto [i, o] = detail::now<In, Out>(in, out);
        return call(at(root) ? alike("reduce", i, o) : "", muster_reduce_with, i.data, o.data, i.size, o.type,
                    detail::folding<T>(combine), detail::context_of(combine), commutative ? 1 : 0, root);
    }
    /// As that reduce, without waiting. The request keeps the function.
    template <class In, class Out, class Combine, basic::when_buffers<In, Out> = 0, detail::when_combines<Combine, Out> = 0>
    outcome<request> ireduce(In &&in, Out &&out, std::int32_t root, Combine combine, bool commutative = true) const {
        using T = std::remove_cv_t<basic::element_t<Out>>;
        const auto [i, o] = detail::later<In, Out>(in, out);
        auto kept = std::make_shared<const Combine>(std::move(combine));
        return start_keeping(kept, at(root) ? alike("ireduce", i, o) : "", muster_ireduce_with, i.data, o.data, i.size, o.type,
                             detail::folding<T>(*kept), detail::context_of(*kept), commutative ? 1 : 0, root);
    }

    /// Everyone gets all ranks' elements, in order of rank: `out` has room for `in` of every rank. It works in place if
    /// `in` is this rank's part of `out`.
    template <class In, class Out, basic::when_buffers<In, Out> = 0> outcome<void> allgather(const In &in, Out &&out) const {
        const auto [i, o] = detail::now<In, Out>(in, out);
        return call(times("allgather", i, o), muster_allgather, i.data, o.data, i.size, o.type);
    }
    /// All ranks' values, in order of rank.
    template <class T, detail::when_value<T> = 0> [[nodiscard]] outcome<std::vector<T>> allgather(T value) const {
        struct held {  // a std::vector<bool> has bits, to which nobody can write
            T value;
        };
        std::vector<held> all(members(), held{value});
        const muster_status_t code = muster_allgather(handle_, &value, all.data(), 1, detail::element_type<T>());
        std::vector<T> values;
        values.reserve(all.size());
        for (const held &one : all) {
            values.push_back(one.value);
        }
        return detail::out(detail::valued(code, std::move(values)));
    }
    /// As allgather, without waiting.
    template <class In, class Out, basic::when_buffers<In, Out> = 0> outcome<request> iallgather(In &&in, Out &&out) const {
        const auto [i, o] = detail::later<In, Out>(in, out);
        return start(times("iallgather", i, o), muster_iallgather, i.data, o.data, i.size, o.type);
    }

    /// As allgather with parts of different sizes, which lie in `out` as `of_out` says. All ranks pass the same counts.
    template <class In, class Out, basic::when_buffers<In, Out> = 0>
    outcome<void> allgatherv(const In &in, Out &&out, const parts &of_out) const {
        const auto [i, o] = detail::now<In, Out>(in, out);
        return call(placed("allgatherv", of_out, o), muster_allgatherv, i.data, i.size, o.data, of_out.counts().data(),
                    of_out.displacements().data(), o.type);
    }
    /// As allgatherv, without waiting.
    template <class In, class Out, basic::when_buffers<In, Out> = 0>
    outcome<request> iallgatherv(In &&in, Out &&out, const parts &of_out) const {
        const auto [i, o] = detail::later<In, Out>(in, out);
        return start(placed("iallgatherv", of_out, o), muster_iallgatherv, i.data, i.size, o.data, of_out.counts().data(),
                     of_out.displacements().data(), o.type);
    }

    /// The root gets all ranks' elements, in order of rank, as allgather gives them to everyone. On other ranks `out` is
    /// ignored, and may be empty.
    template <class In, class Out, basic::when_buffers<In, Out> = 0>
    outcome<void> gather(const In &in, Out &&out, std::int32_t root) const {
        const auto [i, o] = detail::now<In, Out>(in, out);
        return call(at(root) ? times("gather", i, o) : "", muster_gather, i.data, o.data, i.size, o.type, root);
    }
    /// As gather, without waiting.
    template <class In, class Out, basic::when_buffers<In, Out> = 0>
    outcome<request> igather(In &&in, Out &&out, std::int32_t root) const {
        const auto [i, o] = detail::later<In, Out>(in, out);
        return start(at(root) ? times("igather", i, o) : "", muster_igather, i.data, o.data, i.size, o.type, root);
    }

    /// As gather with parts of different sizes, which lie in the root's `out` as its `of_out` says. On other ranks both are
    /// ignored.
    template <class In, class Out, basic::when_buffers<In, Out> = 0>
    outcome<void> gatherv(const In &in, Out &&out, const parts &of_out, std::int32_t root) const {
        const auto [i, o] = detail::now<In, Out>(in, out);
        return call(at(root) ? placed("gatherv", of_out, o) : "", muster_gatherv, i.data, i.size, o.data, of_out.counts().data(),
                    of_out.displacements().data(), o.type, root);
    }
    /// As gatherv, without waiting.
    template <class In, class Out, basic::when_buffers<In, Out> = 0>
    outcome<request> igatherv(In &&in, Out &&out, const parts &of_out, std::int32_t root) const {
        const auto [i, o] = detail::later<In, Out>(in, out);
        return start(at(root) ? placed("igatherv", of_out, o) : "", muster_igatherv, i.data, i.size, o.data,
                     of_out.counts().data(), of_out.displacements().data(), o.type, root);
    }

    /// Each rank gets its part of the root's `in`, which has as many elements for every rank as `out` has room for. On other
    /// ranks `in` is ignored, and may be empty.
    template <class In, class Out, basic::when_buffers<In, Out> = 0>
    outcome<void> scatter(const In &in, Out &&out, std::int32_t root) const {
        const auto [i, o] = detail::now<In, Out>(in, out);
        return call(at(root) ? times("scatter", o, i) : "", muster_scatter, i.data, o.data, o.size, o.type, root);
    }
    /// As scatter, without waiting.
    template <class In, class Out, basic::when_buffers<In, Out> = 0>
    outcome<request> iscatter(In &&in, Out &&out, std::int32_t root) const {
        const auto [i, o] = detail::later<In, Out>(in, out);
        return start(at(root) ? times("iscatter", o, i) : "", muster_iscatter, i.data, o.data, o.size, o.type, root);
    }

    /// As scatter with parts of different sizes, which lie in the root's `in` as its `of_in` says. On other ranks both are
    /// ignored.
    template <class In, class Out, basic::when_buffers<In, Out> = 0>
    outcome<void> scatterv(const In &in, const parts &of_in, Out &&out, std::int32_t root) const {
        const auto [i, o] = detail::now<In, Out>(in, out);
        return call(at(root) ? placed("scatterv", of_in, i) : "", muster_scatterv, i.data, of_in.counts().data(),
                    of_in.displacements().data(), o.data, o.size, o.type, root);
    }
    /// As scatterv, without waiting.
    template <class In, class Out, basic::when_buffers<In, Out> = 0>
    outcome<request> iscatterv(In &&in, const parts &of_in, Out &&out, std::int32_t root) const {
        const auto [i, o] = detail::later<In, Out>(in, out);
        return start(at(root) ? placed("iscatterv", of_in, i) : "", muster_iscatterv, i.data, of_in.counts().data(),
                     of_in.displacements().data(), o.data, o.size, o.type, root);
    }

    /// Each rank gets its part of all ranks' elements of `in` combined. For every rank `in` has as many elements as `out`. It
    /// works in place if `out` is this rank's part of `in`.
    template <class In, class Out, basic::when_buffers<In, Out> = 0>
    outcome<void> reduce_scatter(const In &in, Out &&out, detail::reduction_of<Out> with = op::sum) const {
        const auto [i, o] = detail::now<In, Out>(in, out);
        return call(times("reduce_scatter", o, i), muster_reduce_scatter, i.data, o.data, o.size, o.type, with.number());
    }
    /// As reduce_scatter, without waiting.
    template <class In, class Out, basic::when_buffers<In, Out> = 0>
    outcome<request> ireduce_scatter(In &&in, Out &&out, detail::reduction_of<Out> with = op::sum) const {
        const auto [i, o] = detail::later<In, Out>(in, out);
        return start(times("ireduce_scatter", o, i), muster_ireduce_scatter, i.data, o.data, o.size, o.type, with.number());
    }

    /// As reduce_scatter, with a function of two values in place of an operation: see muster_reduce_scatter_with.
    template <class In, class Out, class Combine, basic::when_buffers<In, Out> = 0, detail::when_combines<Combine, Out> = 0>
    outcome<void> reduce_scatter(const In &in, Out &&out, Combine combine, bool commutative = true) const {
        using T = std::remove_cv_t<basic::element_t<Out>>;
        const auto [i, o] = detail::now<In, Out>(in, out);
        return call(times("reduce_scatter", o, i), muster_reduce_scatter_with, i.data, o.data, o.size, o.type,
                    detail::folding<T>(combine), detail::context_of(combine), commutative ? 1 : 0);
    }
    /// As that reduce_scatter, without waiting. The request keeps the function.
    template <class In, class Out, class Combine, basic::when_buffers<In, Out> = 0, detail::when_combines<Combine, Out> = 0>
    outcome<request> ireduce_scatter(In &&in, Out &&out, Combine combine, bool commutative = true) const {
        using T = std::remove_cv_t<basic::element_t<Out>>;
        const auto [i, o] = detail::later<In, Out>(in, out);
        auto kept = std::make_shared<const Combine>(std::move(combine));
        return start_keeping(kept, times("ireduce_scatter", o, i), muster_ireduce_scatter_with, i.data, o.data, o.size, o.type,
                             detail::folding<T>(*kept), detail::context_of(*kept), commutative ? 1 : 0);
    }

    /// As reduce_scatter with parts of different sizes, which follow each other in `in`. All ranks pass the same counts. `out` is
    /// as long as this rank's part.
    template <class In, class Out, basic::when_buffers<In, Out> = 0>
    outcome<void> reduce_scatterv(const In &in, Out &&out, span<const std::size_t> counts,
                                  detail::reduction_of<Out> with = op::sum) const {
        const auto [i, o] = detail::now<In, Out>(in, out);
        return call(own_part("reduce_scatterv", counts, i, o), muster_reduce_scatterv, i.data, o.data, counts.data(), o.type,
                    with.number());
    }
    /// As reduce_scatterv, without waiting.
    template <class In, class Out, basic::when_buffers<In, Out> = 0>
    outcome<request> ireduce_scatterv(In &&in, Out &&out, span<const std::size_t> counts,
                                      detail::reduction_of<Out> with = op::sum) const {
        const auto [i, o] = detail::later<In, Out>(in, out);
        return start(own_part("ireduce_scatterv", counts, i, o), muster_ireduce_scatterv, i.data, o.data, counts.data(), o.type,
                     with.number());
    }

    /// As reduce_scatterv, with a function of two values in place of an operation: see muster_reduce_scatterv_with.
    template <class In, class Out, class Combine, basic::when_buffers<In, Out> = 0, detail::when_combines<Combine, Out> = 0>
    outcome<void> reduce_scatterv(const In &in, Out &&out, span<const std::size_t> counts, Combine combine,
                                  bool commutative = true) const {
        using T = std::remove_cv_t<basic::element_t<Out>>;
        const auto [i, o] = detail::now<In, Out>(in, out);
        return call(own_part("reduce_scatterv", counts, i, o), muster_reduce_scatterv_with, i.data, o.data, counts.data(), o.type,
                    detail::folding<T>(combine), detail::context_of(combine), commutative ? 1 : 0);
    }
    /// As that reduce_scatterv, without waiting. The request keeps the function.
    template <class In, class Out, class Combine, basic::when_buffers<In, Out> = 0, detail::when_combines<Combine, Out> = 0>
    outcome<request> ireduce_scatterv(In &&in, Out &&out, span<const std::size_t> counts, Combine combine,
                                      bool commutative = true) const {
        using T = std::remove_cv_t<basic::element_t<Out>>;
        const auto [i, o] = detail::later<In, Out>(in, out);
        auto kept = std::make_shared<const Combine>(std::move(combine));
        return start_keeping(kept, own_part("ireduce_scatterv", counts, i, o), muster_ireduce_scatterv_with, i.data, o.data,
                             counts.data(), o.type, detail::folding<T>(*kept), detail::context_of(*kept), commutative ? 1 : 0);
    }

    /// As allgatherv into a buffer of its own for each rank: the elements of rank r go to `outs[r]`, whose length says how many
    /// there are. All ranks pass the same lengths. In place where `in` is this rank's own output.
    template <class In, class Outs, basic::when_buffers<In, Outs> = 0>
    outcome<void> allgather_list(const In &in, Outs &&outs) const {
        const auto i = detail::readable("in", in);
        const auto o = detail::writable_list<In>(outs);
        return call(listed("allgather_list", "outs", o.data.size()), muster_allgather_list, i.data, i.size, o.data.data(),
                    o.sizes.data(), i.type);
    }
    /// As allgather_list, without waiting. The list itself is not needed afterwards; its buffers are.
    template <class In, class Outs, basic::when_buffers<In, Outs> = 0>
    outcome<request> iallgather_list(In &&in, Outs &&outs) const {
        static_assert(basic::lends<Outs> || basic::lends<basic::element_t<Outs>>, "its buffers must not be temporaries");
        const auto i = detail::read_later<In>("in", in);
        const auto o = detail::writable_list<In>(outs);
        return start(listed("iallgather_list", "outs", o.data.size()), muster_iallgather_list, i.data, i.size, o.data.data(),
                     o.sizes.data(), i.type);
    }

    /// As reduce_scatterv of a buffer of its own for each rank: what this rank adds to rank r's part lies in `ins[r]`. All ranks
    /// pass the same lengths. In place where `out` is this rank's own input.
    template <class Ins, class Out, basic::when_buffers<Ins, Out> = 0>
    outcome<void> reduce_scatter_list(const Ins &ins, Out &&out, detail::reduction_of<Out> with = op::sum) const {
        const auto i = detail::readable_list<Out>(ins);
        const auto o = detail::writable<Out>("out", out);
        return call(listed("reduce_scatter_list", "ins", i.data.size()), muster_reduce_scatter_list, i.data.data(),
                    i.sizes.data(), o.data, o.size, o.type, with.number());
    }
    /// As reduce_scatter_list, without waiting. The list itself is not needed afterwards; its buffers are.
    template <class Ins, class Out, basic::when_buffers<Ins, Out> = 0>
    outcome<request> ireduce_scatter_list(Ins &&ins, Out &&out, detail::reduction_of<Out> with = op::sum) const {
        static_assert(basic::lends<Ins> || basic::lends<basic::element_t<Ins>>, "its buffers must not be temporaries");
        const auto i = detail::readable_list<Out>(ins);
        const auto o = detail::writable<Out>("out", out);
        return start(listed("ireduce_scatter_list", "ins", i.data.size()), muster_ireduce_scatter_list, i.data.data(),
                     i.sizes.data(), o.data, o.size, o.type, with.number());
    }

    /// Part r of `in` becomes this rank's part of rank r's `out`. Both have as many elements for every rank, and may be the same
    /// buffer.
    template <class In, class Out, basic::when_buffers<In, Out> = 0> outcome<void> alltoall(const In &in, Out &&out) const {
        const auto [i, o] = detail::now<In, Out>(in, out);
        return call(divided("alltoall", i, o), muster_alltoall, i.data, o.data, o.size / members(), o.type);
    }
    /// As alltoall, without waiting.
    template <class In, class Out, basic::when_buffers<In, Out> = 0> outcome<request> ialltoall(In &&in, Out &&out) const {
        const auto [i, o] = detail::later<In, Out>(in, out);
        return start(divided("ialltoall", i, o), muster_ialltoall, i.data, o.data, o.size / members(), o.type);
    }

    /// As alltoall with parts of different sizes: `of_in` says what goes to each rank, `of_out` what comes from each.
    template <class In, class Out, basic::when_buffers<In, Out> = 0>
    outcome<void> alltoallv(const In &in, const parts &of_in, Out &&out, const parts &of_out) const {
        const auto [i, o] = detail::now<In, Out>(in, out);
        return call(placed("alltoallv", of_in, i, of_out, o), muster_alltoallv, i.data, of_in.counts().data(),
                    of_in.displacements().data(), o.data, of_out.counts().data(), of_out.displacements().data(), o.type);
    }
    /// As alltoallv, without waiting.
    template <class In, class Out, basic::when_buffers<In, Out> = 0>
    outcome<request> ialltoallv(In &&in, const parts &of_in, Out &&out, const parts &of_out) const {
        const auto [i, o] = detail::later<In, Out>(in, out);
        return start(placed("ialltoallv", of_in, i, of_out, o), muster_ialltoallv, i.data, of_in.counts().data(),
                     of_in.displacements().data(), o.data, of_out.counts().data(), of_out.displacements().data(), o.type);
    }

    // ---------------------------------------------------------------------------------------------------- Messages

    /// Sends elements to the member with rank `to`, under a tag of 0 or more. A message of more than 64 KiB waits for the
    /// receive. A shorter message waits only if the receiver already keeps 16 MiB of this sender, where each message takes 512
    /// bytes more than it has. (If the receiver is this rank itself, that is `status::limit`.)
    template <class In, basic::when_buffer<In> = 0>
    outcome<void> send(const In &in, std::int32_t to, std::int32_t tag = 0) const {
        const auto i = detail::readable("in", in);
        return call({}, muster_send, i.data, i.size, i.type, to, tag);
    }
    /// As send, without waiting.
    template <class In, basic::when_buffer<In> = 0> outcome<request> isend(In &&in, std::int32_t to, std::int32_t tag = 0) const {
        const auto i = detail::read_later<In>("in", in);
        return start({}, muster_isend, i.data, i.size, i.type, to, tag);
    }

    /// Receives a message of at most as many elements as `out` has, from this rank (or any_source) and with this tag (or
    /// any_tag). Says which rank sent it, its tag, and how many elements came. For a message that does not fit, error::misfit
    /// says the same.
    template <class Out, basic::when_buffer<Out> = 0>
    outcome<received> recv(Out &&out, std::int32_t from = any_source, std::int32_t tag = any_tag) const {
        const auto o = detail::writable<Out>("out", out);
        received told{-1, 0, 0, 0};
        const muster_status_t code = muster_recv(handle_, o.data, o.size, o.type, from, tag, &told, sizeof told);
        return detail::out(detail::receipt(code, told));
    }
    /// As recv, without waiting; request::received says what came.
    template <class Out, basic::when_buffer<Out> = 0>
    outcome<request> irecv(Out &&out, std::int32_t from = any_source, std::int32_t tag = any_tag) const {
        const auto o = detail::writable<Out>("out", out);
        return start_receiving(muster_irecv, o.data, o.size, o.type, from, tag);
    }

    /// Waits for the next message that a receive with this source and tag would get, and describes it without taking it.
    outcome<received> probe(std::int32_t from = any_source, std::int32_t tag = any_tag) const {
        received told{};
        const muster_status_t code = muster_probe(handle_, from, tag, &told, sizeof told);
        return detail::out(detail::valued(code, told));
    }
    /// Describes the next message that a receive with this source and tag would get now; nothing if there is none.
    outcome<std::optional<received>> iprobe(std::int32_t from = any_source, std::int32_t tag = any_tag) const {
        received told{};
        const muster_status_t code = muster_iprobe(handle_, from, tag, &told, sizeof told);
        return detail::out(detail::valued(code, code == MUSTER_IN_PROGRESS ? std::nullopt : std::optional<received>(told)));
    }

    /// Sends to one rank and receives from one, at the same time. The two may have different lengths, element types and tags.
    template <class In, class Out, basic::when_buffers<In, Out> = 0>
    outcome<received> sendrecv(const In &in, std::int32_t to, std::int32_t in_tag, Out &&out, std::int32_t from,
                               std::int32_t out_tag) const {
        const auto i = detail::readable("in", in);
        const auto o = detail::writable<Out>("out", out);
        received told{-1, 0, 0, 0};
        const muster_status_t code = muster_sendrecv(handle_, i.data, i.size, i.type, to, in_tag, o.data, o.size, o.type, from,
                                                     out_tag, &told, sizeof told);
        return detail::out(detail::receipt(code, told));
    }
    /// As sendrecv, without waiting: one request, which has ended when both have.
    template <class In, class Out, basic::when_buffers<In, Out> = 0>
    outcome<request> isendrecv(In &&in, std::int32_t to, std::int32_t in_tag, Out &&out, std::int32_t from,
                               std::int32_t out_tag) const {
        const auto i = detail::read_later<In>("in", in);
        const auto o = detail::writable<Out>("out", out);
        return start_receiving(muster_isendrecv, i.data, i.size, i.type, to, in_tag, o.data, o.size, o.type, from, out_tag);
    }

private:
    // Calls the library, unless a sentence says why the buffers do not fit.
    template <class Call, class... Arguments>
    outcome<void> call(const std::string &misfit, Call function, Arguments... arguments) const {
        return detail::out(asks(misfit) ? detail::checked(function(handle_, arguments...)) : result<void>(detail::invalid(misfit)));
    }
    // The buffers fit; or the group is empty, and the library says so before it looks at them.
    bool asks(const std::string &misfit) const { return misfit.empty() || muster_group_size(handle_) <= 0; }
    // Calls the library as above, for a call that gives out a request.
    template <class Call, class... Arguments>
    outcome<request> start(const std::string &misfit, Call function, Arguments... arguments) const {
        return start_keeping(nullptr, misfit, function, arguments...);
    }
    // Calls the library as above, for a request that keeps something until it is gone.
    template <class Call, class... Arguments>
    outcome<request> start_keeping(std::shared_ptr<const void> kept, const std::string &misfit, Call function,
                                   Arguments... arguments) const {
        if (!asks(misfit)) {
            return detail::out(result<request>(detail::invalid(misfit)));
        }
        muster_request_t *handle = nullptr;
        const muster_status_t code = function(handle_, arguments..., &handle);
        return detail::out(detail::valued(code, request(handle, nullptr, std::move(kept))));
    }
    // Calls the library as above, for a call that describes a message.
    template <class Call, class... Arguments> outcome<request> start_receiving(Call function, Arguments... arguments) const {
        auto place = std::make_unique<received>();
        place->source = any_source;
        muster_request_t *handle = nullptr;
        const muster_status_t code = function(handle_, arguments..., place.get(), sizeof *place, &handle);
        return detail::out(detail::valued(code, request(handle, std::move(place))));
    }

    // The group's size; 1 for an empty group: the library then says what is wrong.
    std::size_t members() const {
        const std::int32_t count = muster_group_size(handle_);
        return count <= 0 ? 1 : static_cast<std::size_t>(count);
    }
    bool at(std::int32_t root) const { return muster_group_rank(handle_) == root; }

    // Why buffers do not fit, as a sentence; empty if they do.

    template <class In, class Out> static std::string alike(const char *name, const In &in, const Out &out) {
        return in.size == out.size ? "" : detail::lengths(name, in, out) + ": they must have as many";
    }
    // The first buffer holds whole vectors, each as long as the second.
    template <class In, class Out> static std::string multiple(const char *name, const In &in, const Out &out) {
        return (out.size == 0 ? in.size : in.size % out.size) == 0
                   ? ""
                   : detail::lengths(name, in, out) + ": `in` must have a multiple of that";
    }
    // The whole has room for the part of every rank.
    template <class Part, class Whole> std::string times(const char *name, const Part &part, const Whole &whole) const {
        const std::size_t ranks = members();
        return whole.size % ranks == 0 && whole.size / ranks == part.size
                   ? ""
                   : detail::lengths(name, part, whole) + ": `" + whole.name + "` must have " + std::to_string(part.size) +
                         " for each of " + std::to_string(ranks) + " ranks";
    }
    template <class In, class Out> std::string divided(const char *name, const In &in, const Out &out) const {
        const std::size_t ranks = members();
        return in.size != out.size || in.size % ranks == 0
                   ? alike(name, in, out)
                   : detail::lengths(name, in, out) + ": that cannot be divided by " + std::to_string(ranks) + " ranks";
    }
    template <class Buffer> std::string placed(const char *name, const parts &of, const Buffer &buffer) const {
        const std::string sentence = detail::misfit(of, buffer.name, buffer.size, members());
        return sentence.empty() ? "" : std::string(name) + ": " + sentence;
    }
    std::string listed(const char *name, const char *list, std::size_t length) const {
        const std::size_t ranks = members();
        return length == ranks ? ""
                               : std::string(name) + ": `" + list + "` has " + std::to_string(length) +
                                     " buffers: the group has " + std::to_string(ranks) + " ranks";
    }
    template <class In, class Out>
    std::string placed(const char *name, const parts &of_in, const In &in, const parts &of_out, const Out &out) const {
        const std::string sentence = placed(name, of_in, in);
        return sentence.empty() ? placed(name, of_out, out) : sentence;
    }
    template <class In, class Out>
    std::string own_part(const char *name, span<const std::size_t> counts, const In &in, const Out &out) const {
        const std::string sentence = placed(name, counts, in);
        const std::int32_t rank = muster_group_rank(handle_);
        if (!sentence.empty() || rank < 0 || counts[static_cast<std::size_t>(rank)] == out.size) {
            return sentence;
        }
        return std::string(name) + ": `out` has " + std::to_string(out.size) + " elements: the part of this rank has " +
               std::to_string(counts[static_cast<std::size_t>(rank)]);
    }

    muster_group_t *handle_ = nullptr;
};

/// A group that the program made, and owns: freed when this object is destroyed, also after its cluster. Each member frees its
/// own group; calls on it that go on end with `status::state`. May wait up to 1 s for what was sent last.
class owned_group : public group {
public:
    /// No group.
    owned_group() noexcept = default;
    /// Takes over a group of the C API.
    explicit owned_group(muster_group_t *handle) noexcept : group(handle), handle_(handle) {}
    /// Takes the group over.
    owned_group(owned_group &&other) noexcept : group(std::exchange(base(other), group())), handle_(std::move(other.handle_)) {}
    /// Frees its own group, and takes the other's over.
    owned_group &operator=(owned_group &&other) noexcept {
        if (this != &other) {
            handle_ = std::move(other.handle_);
            base(*this) = std::exchange(base(other), group());
        }
        return *this;
    }

private:
    static group &base(owned_group &of) noexcept { return of; }

    detail::owner<muster_group_t, muster_group_free> handle_;
};

inline outcome<owned_group> group::create(span<const std::int32_t> ranks) const {
    muster_group_t *made = nullptr;
    const muster_status_t code = muster_group_create(handle_, ranks.data(), ranks.size(), &made);
    return detail::out(detail::valued(code, owned_group(made)));
}

inline outcome<owned_group> group::split(std::int32_t colour, std::int32_t key) const {
    muster_group_t *made = nullptr;
    const muster_status_t code = muster_group_split(handle_, colour, key, &made);
    return detail::out(detail::valued(code, owned_group(made)));
}

// ---------------------------------------------------------------------------------------------------------------- Store

/// The cluster's small key-value store. Values are bytes, and come as std::string. This object only points to its cluster. Every
/// call waits for the scheduler's answer.
class store {
public:
    /// Sets a key to some bytes, or text. An array of char is text: it ends at its first zero byte, and must have one.
    outcome<void> set(store_bytes key, store_bytes value) const {
        return detail::out(
            detail::checked(muster_store_set_bytes(handle_, key.data(), key.size(), value.data(), value.size())));
    }
    /// Sets a key to the bytes of these elements. From C++20 on a literal `u8""` is an array of char8_t, which does not compile
    /// here: pass a std::u8string_view.
    template <
        class Buffer,
        std::enable_if_t<basic::is_buffer<Buffer>::value && !std::is_convertible_v<const Buffer &, std::string_view>, int> = 0>
    outcome<void> set(store_bytes key, const Buffer &value) const {
        using element = basic::element_t<const Buffer>;
        static_assert(std::is_trivially_copyable_v<element>, "elements travel as bytes: they must be trivially copyable");
        static_assert(!std::is_pointer_v<element> && !basic::is_view<element>, "what a pointer or a view leads to does not travel");
#ifdef __cpp_char8_t
        // In C++17 a literal u8"" is an array of char, which is set without its zero byte.
        static_assert(!std::is_array_v<Buffer> || !std::is_same_v<std::remove_cv_t<element>, char8_t>,
                      "an array of char8_t would be set with its zero byte: pass a std::u8string_view");
#endif
        const std::size_t bytes = static_cast<std::size_t>(std::size(value)) * sizeof(element);
        return set(key, std::string_view(reinterpret_cast<const char *>(std::data(value)), bytes));
    }
    /// Sets several keys to one value each, all at one moment and exactly once. There must be as many values as keys.
    outcome<void> multi_set(span<const std::string> keys, span<const std::string> values) const {
        if (keys.size() != values.size()) {
            return detail::out(result<void>(detail::invalid(std::to_string(keys.size()) + " keys have " +
                                                            std::to_string(values.size()) + " values: expected one for each")));
        }
        const std::vector<muster_bytes_t> names = bytes(keys), contents = bytes(values);
        return detail::out(detail::checked(muster_store_multi_set(handle_, names.data(), contents.data(), names.size())));
    }
    /// Appends bytes to a key's value, exactly once, and gives the value's new length. A key that is not there counts as empty.
    outcome<std::size_t> append(store_bytes key, store_bytes value) const {
        std::size_t total = 0;
        const muster_status_t code =
            muster_store_append(handle_, key.data(), key.size(), value.data(), value.size(), &total);
        return detail::out(detail::valued(code, total));
    }
    /// Waits until somebody has set a key, and gives its value.
    outcome<std::string> get(store_bytes key, milliseconds timeout = usual_timeout) const {
        return detail::out(value_of(key, timeout));
    }
    /// The value of a key, if it is there now.
    outcome<std::optional<std::string>> try_get(store_bytes key) const {
        result<std::string> value = value_of(key, milliseconds(0));
        if (value.has_value()) {
            return detail::out(result<std::optional<std::string>>(std::move(*value)));
        }
        return detail::out(value.error().code() == status::not_found ? result<std::optional<std::string>>(std::nullopt)
                                                                     : result<std::optional<std::string>>(value.error()));
    }
    /// Waits until all of several keys are there, and gives their values, in the keys' order and in one request.
    outcome<std::vector<std::string>> multi_get(span<const std::string> keys, milliseconds timeout = usual_timeout) const {
        const std::vector<muster_bytes_t> names = bytes(keys);
        muster_bytes_t *values = nullptr;
        const muster_status_t code = muster_store_multi_get(handle_, names.data(), names.size(), timeout.count(), &values);
        return detail::out(texts(code, values, names.size()));
    }
    /// Adds to the number in a key, exactly once, and gives the sum. A key that is not there counts as 0.
    outcome<std::int64_t> add(store_bytes key, std::int64_t delta) const {
        std::int64_t sum = 0;
        const muster_status_t code = muster_store_add_bytes(handle_, key.data(), key.size(), delta, &sum);
        return detail::out(detail::valued(code, sum));
    }
    /// Sets a key to `desired` if its value is `expected`, exactly once. Gives the value afterwards. A key that is not there
    /// counts as empty. With `MUSTER_STORE_C10D` as `flags`, if the key is not there and `expected` is not empty, the call
    /// answers as PyTorch's c10d does.
    outcome<std::string> compare_set(store_bytes key, store_bytes expected, store_bytes desired,
                                     std::int32_t flags = 0) const {
        void *value = nullptr;
        std::size_t length = 0;
        const muster_status_t code =
            muster_store_compare_set_bytes(handle_, key.data(), key.size(), expected.data(), expected.size(), desired.data(),
                                           desired.size(), flags, &value, &length);
        return detail::out(taken(code, value, length));
    }
    /// Deletes a key. Returns whether it was there.
    outcome<bool> remove(store_bytes key) const {
        std::int32_t existed = 0;
        const muster_status_t code = muster_store_delete_bytes(handle_, key.data(), key.size(), &existed);
        return detail::out(detail::valued(code, existed != 0));
    }
    /// Waits until all these keys are there.
    outcome<void> wait(span<const std::string> keys, milliseconds timeout = usual_timeout) const {
        const std::vector<muster_bytes_t> names = bytes(keys);
        return detail::out(detail::checked(muster_store_wait_bytes(handle_, names.data(), names.size(), timeout.count())));
    }
    /// Which of these keys are there, all at one moment.
    outcome<std::vector<bool>> check(span<const std::string> keys) const {
        const std::vector<muster_bytes_t> names = bytes(keys);
        std::vector<std::int32_t> exists(names.size());
        const muster_status_t code = muster_store_check(handle_, names.data(), names.size(), exists.data());
        return detail::out(detail::valued(code, std::vector<bool>(exists.begin(), exists.end())));
    }
    /// How many keys there are.
    outcome<std::uint64_t> count() const {
        std::uint64_t keys = 0;
        const muster_status_t code = muster_store_count(handle_, &keys);
        return detail::out(detail::valued(code, keys));
    }
    /// The keys that begin with this, in ascending order of their bytes; all keys for an empty prefix.
    outcome<std::vector<std::string>> list(store_bytes prefix = {}) const {
        muster_bytes_t *keys = nullptr;
        std::size_t found = 0;
        const muster_status_t code = muster_store_list(handle_, prefix.data(), prefix.size(), &keys, &found);
        return detail::out(texts(code, keys, found));
    }

private:
    friend class cluster;
    explicit store(muster_cluster_t *handle) noexcept : handle_(handle) {}

    static std::vector<muster_bytes_t> bytes(span<const std::string> given) {
        std::vector<muster_bytes_t> all;
        for (const std::string &one_of_them : given) {
            all.push_back({one_of_them.data(), one_of_them.size()});
        }
        return all;
    }
    result<std::string> value_of(std::string_view key, milliseconds timeout) const {
        void *value = nullptr;
        std::size_t length = 0;
        const muster_status_t code =
            muster_store_get_bytes(handle_, key.data(), key.size(), timeout.count(), &value, &length);
        return taken(code, value, length);
    }
    static result<std::string> taken(muster_status_t code, void *value, std::size_t length) {
        const detail::owner<void, muster_free> owned(value);
        return detail::valued(code, value == nullptr ? std::string() : std::string(static_cast<const char *>(value), length));
    }
    // The entries that came as one block.
    static result<std::vector<std::string>> texts(muster_status_t code, muster_bytes_t *block, std::size_t entries) {
        const detail::owner<void, muster_free> owned(block);
        std::vector<std::string> all;
        for (std::size_t i = 0; block != nullptr && i < entries; i++) {
            all.emplace_back(static_cast<const char *>(block[i].data), block[i].len);
        }
        return detail::valued(code, std::move(all));
    }

    muster_cluster_t *handle_;
};

// -------------------------------------------------------------------------------------------------------------- Cluster

/// This node's place in its cluster. Calls on it are thread-safe.
///
/// **Its destructor leaves in order** (finalize), which takes at most the setting `finalize_timeout`, and frees the handle. If it
/// runs because an exception leaves its scope, it does not leave in order: the others see this node as lost, as they would if the
/// process had died. To end the job for everyone, with the reason, call abort(). The hook of config::set_interrupt may end the
/// leaving, too: the others then see this node as lost. So make the hook return false again before the destructor runs.
class cluster {
public:
    /// No cluster.
    cluster() noexcept = default;
    /// Takes the cluster over.
    cluster(cluster &&other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    /// Leaves its own cluster, as the destructor does, and takes the other's over.
    cluster &operator=(cluster &&other) noexcept {
        if (this != &other) {
            leave();
            handle_ = std::exchange(other.handle_, nullptr);
            unwinding_ = std::uncaught_exceptions();
        }
        return *this;
    }
    cluster(const cluster &) = delete;
    cluster &operator=(const cluster &) = delete;
    /// Leaves the cluster: see above.
    ~cluster() { leave(); }

    /// Takes over a cluster of the C API.
    static cluster adopt(muster_cluster_t *handle) noexcept {
        cluster owned;
        owned.handle_ = handle;
        return owned;
    }

    /// Whether this process is in a cluster. A process that was the scheduler is in none: its job has ended.
    explicit operator bool() const noexcept { return handle_ != nullptr; }
    /// The handle of the C API; this object goes on owning it.
    muster_cluster_t *get() const noexcept { return handle_; }

    /// Leaves in order. After that a second call does nothing, and the destructor only frees the handle. A call that was
    /// interrupted (`status::interrupted`) may be repeated. Queries go on answering.
    outcome<void> finalize() { return detail::out(detail::checked(muster_finalize(handle_))); }
    /// Ends the job for every rank: their calls fail with `status::aborted`, this rank, code and reason.
    outcome<void> abort(std::int32_t code, const std::string &reason) {
        result<void> said = detail::whole("the reason", reason);
        said = said ? detail::checked(muster_abort(handle_, code, reason.c_str())) : said;
        return detail::out(std::move(said));
    }
    /// Makes the cluster whole again after a group was revoked: returns once every node has called this. See muster_recover.
    outcome<void> recover(milliseconds timeout = usual_timeout) {
        return detail::out(detail::checked(muster_recover(handle_, timeout.count())));
    }

    /// Ends the waits of this process's calls on this cluster: they fail with `status::interrupted`. See muster_interrupt for
    /// what becomes of their work. Any thread may call this, but not a signal handler. Does not block.
    outcome<void> interrupt() const { return detail::out(detail::checked(muster_interrupt(handle_))); }

    /// Whether this node is a worker or a server.
    outcome<muster::role> role() const {
        const result<std::int32_t> answer = detail::number(muster_role(handle_));
        return detail::out(answer ? result<muster::role>(static_cast<muster::role>(*answer))
                                  : result<muster::role>(answer.error()));
    }
    /// Its rank among the nodes of its role.
    outcome<std::int32_t> rank() const { return detail::out(detail::number(muster_rank(handle_))); }
    /// How many nodes of its role there are.
    outcome<std::int32_t> size() const { return detail::out(detail::number(muster_size(handle_))); }
    /// Its place among the nodes of its role on its host.
    outcome<std::int32_t> local_rank() const { return detail::out(detail::number(muster_local_rank(handle_))); }
    /// How many nodes of its role are on its host.
    outcome<std::int32_t> local_size() const { return detail::out(detail::number(muster_local_size(handle_))); }
    /// How often this node was lost and started again.
    outcome<std::int32_t> restarts() const { return detail::out(detail::number(muster_restarts(handle_))); }
    /// The number of the epoch: 1 for the first.
    outcome<std::int64_t> epoch() const { return detail::out(detail::number(muster_epoch(handle_))); }
    /// Its id.
    outcome<std::string> node_id() const {
        const char *id = muster_node_id(handle_);
        return detail::out(id != nullptr ? result<std::string>(id)
                                         : result<std::string>(detail::failed(muster_rank(handle_))));
    }

    /// The ranks of the workers that are lost, ascending.
    outcome<std::vector<std::int32_t>> failed_ranks() const {
        std::vector<std::int32_t> ranks;
        std::size_t count = 0;
        muster_status_t code = MUSTER_OK;
        do {
            ranks.resize(count);
            code = muster_failed_ranks(handle_, ranks.data(), ranks.size(), &count);
        } while (code == MUSTER_OK && count > ranks.size());
        ranks.resize(code == MUSTER_OK ? count : 0);
        return detail::out(detail::valued(code, std::move(ranks)));
    }
    /// The first cause for which the cluster is broken. While the cluster is whole this is the newest message that timed out
    /// (then `status` is MUSTER_ERR_TIMEOUT), or nothing.
    outcome<std::optional<muster::failure>> failure() const {
        muster::failure cause{};
        const muster_status_t code = muster_failure(handle_, &cause, sizeof cause);
        return detail::out(detail::found(code, cause));
    }
    /// That cause as a sentence.
    outcome<std::optional<std::string>> failure_sentence() const {
        result<std::string> sentence = detail::text(
            [&](char *buf, std::size_t cap, std::size_t *needed) { return muster_cluster_error(handle_, buf, cap, needed); });
        if (!sentence && sentence.error().code() == status::not_found) {
            return detail::out(result<std::optional<std::string>>(std::nullopt));
        }
        return detail::out(sentence ? result<std::optional<std::string>>(std::move(*sentence))
                                    : result<std::optional<std::string>>(sentence.error()));
    }
    /// The values with which HCCL starts here.
    outcome<muster::hccl_cm> hccl_cm() const {
        muster::hccl_cm values{};
        const muster_status_t code = muster_hccl_cm(handle_, &values, sizeof values);
        return detail::out(detail::valued(code, values));
    }
    /// The HCCL rank table of the workers, as JSON.
    outcome<std::string> rank_table() const {
        return detail::out(detail::text(
            [&](char *buf, std::size_t cap, std::size_t *needed) { return muster_rank_table(handle_, buf, cap, needed); }));
    }

    /// All workers. Must not be used once this cluster is gone.
    group world() const noexcept { return group(muster_world(handle_)); }
    /// All parameter servers.
    group servers() const noexcept { return group(muster_servers(handle_)); }
    /// All workers, then all servers.
    group universe() const noexcept { return group(muster_universe(handle_)); }
    /// The store. Must not be used once this cluster is gone.
    muster::store store() const noexcept { return muster::store(handle_); }

    /// Makes a group of these workers. Only they call it, with the same list and tag. The tag tells groups of the same workers
    /// apart.
    outcome<owned_group> create_group(span<const std::int32_t> world_ranks, const std::string &tag = "",
                                      milliseconds timeout = usual_timeout) const {
        const result<void> fits = detail::whole("the tag", tag);
        if (!fits) {
            return detail::out(result<owned_group>(fits.error()));
        }
        muster_group_t *made = nullptr;
        const muster_status_t code =
            muster_group_create_members(handle_, world_ranks.data(), world_ranks.size(), tag.c_str(), timeout.count(), &made);
        return detail::out(detail::valued(code, owned_group(made)));
    }

    /// Makes a reduction of a function of two values; the first is the value of lower ranks. Pass `commutative` false if the
    /// two may not be exchanged. The function must not throw, and must not call this library. All ranks must make their
    /// reductions in the same order. The reduction is freed with the cluster, or by free_op.
    template <class T> outcome<reduction<T>> make_op(T (*combine)(T, T) noexcept, bool commutative = true) {
        static_assert(detail::lies_anywhere<T>, "elements lie as malloc aligns: a function cannot have them aligned beyond that");
        const muster_reduce_fn fold = [](const void *in, void *inout, std::size_t count, std::int32_t, void *ctx) noexcept {
            T (*const function)(T, T) noexcept = reinterpret_cast<T (*)(T, T) noexcept>(ctx);
            const T *low = static_cast<const T *>(in);
            T *high = static_cast<T *>(inout);
            for (std::size_t at = 0; at < count; at++) {
                high[at] = function(low[at], high[at]);
            }
        };
        std::int32_t number = 0;
        const muster_status_t code =
            muster_op_create(handle_, combine != nullptr ? fold : nullptr, reinterpret_cast<void *>(combine),
                             commutative ? 1 : 0, &number);
        return detail::out(detail::valued(code, reduction<T>::from_number(number)));
    }
    /// Frees a reduction that make_op gave out. Its number is invalid from now on.
    template <class T> outcome<void> free_op(reduction<T> made) {
        return detail::out(detail::checked(muster_op_free(handle_, made.number())));
    }

private:
    void leave() noexcept {
        if (handle_ != nullptr && std::uncaught_exceptions() <= unwinding_) {
            muster_finalize(handle_);
        }
        muster_cluster_free(handle_);
        handle_ = nullptr;
    }

    muster_cluster_t *handle_ = nullptr;
    int unwinding_ = std::uncaught_exceptions();  // how many exceptions were on their way when this was made
};

/// @cond internal
namespace detail {

inline result<cluster> joined(const muster_config_t *settings) {
    muster_cluster_t *handle = nullptr;
    const muster_status_t code = muster_init(settings, &handle);
    return valued(code, cluster::adopt(handle));
}
// A configuration that was moved from must not become the environment's settings.
inline result<void> given(const config &settings) {
    return settings.get() != nullptr ? result<void>() : result<void>(invalid("the config is empty: it was moved from"));
}

}  // namespace detail
/// @endcond

/// Joins the cluster that the environment describes. Waits until all nodes are there. In the scheduler's process the call
/// serves until the job has ended, and then gives an empty cluster. With no settings at all this process is a cluster of one.
inline outcome<cluster> init() { return detail::out(detail::joined(nullptr)); }

/// Joins the cluster that these settings describe, as the function above does. The settings are not needed afterwards.
inline outcome<cluster> init(const config &settings) {
    const result<void> given = detail::given(settings);
    return detail::out(given ? detail::joined(settings.get()) : result<cluster>(given.error()));
}

/// A scheduler on a thread of this process. Its destructor stops a scheduler that still runs, and so ends the job for all.
/// Calls are thread-safe.
class scheduler {
public:
    /// Starts one; returns when its port is bound. With `sched_port` 0, the default, the system chooses the port.
    static outcome<scheduler> start(const config &settings) {
        const result<void> given = detail::given(settings);
        return detail::out(given ? started(settings.get()) : result<scheduler>(given.error()));
    }
    /// Starts one with the settings of the environment.
    static outcome<scheduler> start() { return detail::out(started(nullptr)); }

    /// Where it listens, as "host:port".
    outcome<std::string> address() const {
        return detail::out(detail::text(
            [&](char *buf, std::size_t cap, std::size_t *needed) { return muster_scheduler_address(get(), buf, cap, needed); }));
    }
    /// Waits until the job has ended; fails with the job's error.
    outcome<void> wait() { return detail::out(detail::checked(muster_scheduler_wait(get(), usual_timeout.count()))); }
    /// Waits for so long at most; a negative time is 0. Returns whether the job has ended.
    [[nodiscard]] outcome<bool> wait_for(milliseconds timeout) { return wait_for<>(timeout); }
    /// The same for any duration; a part of a millisecond counts as a whole one.
    template <class Rep = milliseconds::rep, class Period = milliseconds::period>
    [[nodiscard]] outcome<bool> wait_for(std::chrono::duration<Rep, Period> timeout) {
        return detail::out(detail::ended(muster_scheduler_wait(get(), detail::waiting(timeout))));
    }
    /// Ends the job for all that are still in it, and waits until the scheduler has ended.
    outcome<void> stop() { return detail::out(detail::checked(muster_scheduler_stop(get()))); }

    /// The handle of the C API; this object goes on owning it.
    muster_scheduler_t *get() const noexcept { return handle_.get(); }

private:
    explicit scheduler(muster_scheduler_t *handle) noexcept : handle_(handle) {}

    static result<scheduler> started(const muster_config_t *settings) {
        muster_scheduler_t *handle = nullptr;
        const muster_status_t code = muster_scheduler_start(settings, &handle);
        return detail::valued(code, scheduler(handle));
    }

    detail::owner<muster_scheduler_t, muster_scheduler_free> handle_;
};

}  // namespace returning or throwing
}  // namespace muster

#ifdef __cpp_lib_ranges
/// A span's elements outlive the span.
template <class T> inline constexpr bool std::ranges::enable_borrowed_range<muster::span<T>> = true;
/// A span is cheap to copy.
template <class T> inline constexpr bool std::ranges::enable_view<muster::span<T>> = true;
#endif

#endif  // MUSTER_HPP
