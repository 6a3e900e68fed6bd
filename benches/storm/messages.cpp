#include "messages.hpp"

#include <algorithm>
#include <cstring>
#include <list>
#include <memory>

namespace {

using Bytes = std::vector<unsigned char>;

constexpr std::size_t kGuard = 64;
constexpr unsigned char kUntouched = 0xee;
constexpr std::size_t kWindow = 5;  // that one thread has under way
constexpr std::int32_t kNever = 2'000'000'000, kShift = 2'000'000'001;

std::uint64_t word(std::uint64_t key, std::size_t at) { return (key + at) * 0x9e3779b97f4a7c15u; }

Bytes filled(std::uint64_t key, std::size_t bytes) {
    Bytes memory(bytes + 8);
    for (std::size_t at = 0; at < bytes; at += 8) {
        const std::uint64_t bits = word(key, at);
        std::memcpy(memory.data() + at, &bits, 8);
    }
    memory.resize(bytes);
    return memory;
}

std::size_t bytes_of(const Message &message) { return message.count * message_types[message.type].width; }

std::string in_words(const Message &message) {
    return "a message of " + std::to_string(bytes_of(message)) + " bytes from rank " + std::to_string(message.from) + " to " +
           std::to_string(message.to) + " on " + Groups::name(message.group) + ", tag " + std::to_string(message.tag);
}

int place_of(const Groups &groups, int group, int rank) {
    const std::vector<int> members = groups.members(group);
    return static_cast<int>(std::find(members.begin(), members.end(), rank) - members.begin());
}

void check(Life &life, const Bytes &memory, const Message &message, const muster_received_t &received, int source) {
    Bytes expected = filled(message.key, bytes_of(message));
    expected.resize(memory.size(), kUntouched);
    if (life.plants("message") && !expected.empty()) {
        expected[0] ^= 1;
    }
    if (memory != expected) {
        const auto wrong = std::mismatch(memory.begin(), memory.end(), expected.begin()).first;
        life.violate(in_words(message) + " has come with other contents, at byte " + std::to_string(wrong - memory.begin()));
    }
    if (received.source != source || received.tag != message.tag || received.count != message.count ||
        received.dtype != message_types[message.type].dtype) {
        life.violate(in_words(message) + " is told as " + std::to_string(received.count) + " elements of type " +
                     std::to_string(received.dtype) + " from rank " + std::to_string(received.source) + " of the group, tag " +
                     std::to_string(received.tag));
    }
    life.slot.messages++;
}

// An operation that goes on; its memory stays until it has ended.
struct Going {
    Life &life;
    const Message *message = nullptr;
    Bytes memory;
    muster_received_t received{-7, -7, 7, -7};
    muster_group_t *const group;
    muster_request_t *request = nullptr;

    Going(Life &life, muster_group_t *group) : life(life), group(group) {}
    Going(const Going &) = delete;
    Going &operator=(const Going &) = delete;
    ~Going() {
        if (request != nullptr) {  // all has been given up
            life.settle("to cancel and free a message", [this] {
                muster_request_cancel(request);
                muster_request_free(request);
            });
        }
    }
};

void end(Going &going, const std::string &what) {
    going.life.make("the wait for " + what, [&] { return muster_request_wait(going.request, -1); }, going.group);
    muster_request_free(going.request);
    going.request = nullptr;
}

void received(const Groups &groups, const Going &going) {
    const Message &message = *going.message;
    check(going.life, going.memory, message, going.received, place_of(groups, message.group, message.from));
}

}  // namespace

void send_all(Life &life, const Groups &groups, const std::vector<Message> &messages, Chance own) {
    std::list<Going> window;
    for (const Message &message : messages) {
        if (message.from != life.rank) {
            continue;
        }
        Going &going = window.emplace_back(life, groups.handle(message.group));
        going.message = &message;
        going.memory = filled(message.key, bytes_of(message));
        const int to = place_of(groups, message.group, message.to);
        const std::int32_t dtype = message_types[message.type].dtype;
        if (own.one_in(2)) {
            life.make("to send " + in_words(message), [&] {
                return muster_send(going.group, going.memory.data(), message.count, dtype, to, message.tag);
            }, going.group);
            window.pop_back();
            continue;
        }
        life.make("to start to send " + in_words(message), [&] {
            return muster_isend(going.group, going.memory.data(), message.count, dtype, to, message.tag, &going.request);
        }, going.group);
        if (window.size() >= kWindow) {
            end(window.front(), in_words(*window.front().message));
            window.pop_front();
        }
    }
    for (; !window.empty(); window.pop_front()) {
        end(window.front(), in_words(*window.front().message));
    }
}

void receive_named(Life &life, const Groups &groups, const std::vector<Message> &messages, Chance own) {
    std::list<Going> window;
    const auto finish_first = [&] {
        end(window.front(), in_words(*window.front().message));
        received(groups, window.front());
        window.pop_front();
    };
    for (const Message &message : messages) {
        if (message.to != life.rank || message.taken == Taken::kAnySource) {
            continue;
        }
        Going &going = window.emplace_back(life, groups.handle(message.group));
        const std::size_t width = message_types[message.type].width, room = message.count + own.below(3) * own.below(50);
        going.message = &message;
        going.memory.assign(room * width + kGuard, kUntouched);
        const int from = place_of(groups, message.group, message.from);
        const std::int32_t dtype = message_types[message.type].dtype;
        const std::int32_t tag = message.taken == Taken::kAnyTag ? MUSTER_ANY_TAG : message.tag;
        // If several receives take any tag, the first that was posted gets the first message: none is overtaken.
        if (own.one_in(2) && message.taken == Taken::kBySenderAndTag) {
            life.make("to receive " + in_words(message), [&] {
                return muster_recv(going.group, going.memory.data(), room, dtype, from, tag, &going.received, sizeof going.received);
            }, going.group);
            received(groups, going);
            window.pop_back();
            continue;
        }
        life.make("to start to receive " + in_words(message), [&] {
            return muster_irecv(going.group, going.memory.data(), room, dtype, from, tag, &going.received, sizeof going.received,
                                &going.request);
        }, going.group);
        if (window.size() >= kWindow) {
            finish_first();
        }
    }
    while (!window.empty()) {
        finish_first();
    }
}

void take_what_comes(Life &life, const Groups &groups, const std::vector<Message> &messages, Chance own) {
    std::vector<const Message *> expected;
    std::size_t room = 0;
    for (const Message &message : messages) {
        if (message.to == life.rank && message.taken == Taken::kAnySource) {
            expected.push_back(&message);
            room = std::max(room, message.count);
        }
    }
    muster_group_t *world = groups.handle(kWorldGroup);
    for (std::size_t left = expected.size(); left > 0; left--) {
        Going going(life, world);
        const std::int32_t tag = expected[0]->tag, dtype = message_types[expected[0]->type].dtype;
        going.memory.assign(room + kGuard, kUntouched);
        if (own.one_in(2)) {
            life.make("to receive from anybody", [&] {
                return muster_recv(world, going.memory.data(), room, dtype, MUSTER_ANY_SOURCE, tag, &going.received,
                                   sizeof going.received);
            }, going.group);
        } else {
            life.make("to start to receive from anybody", [&] {
                return muster_irecv(world, going.memory.data(), room, dtype, MUSTER_ANY_SOURCE, tag, &going.received,
                                    sizeof going.received, &going.request);
            }, going.group);
            end(going, "what comes from anybody");
        }
        const auto of_sender = [&](const Message *message) { return message->from == going.received.source; };
        const auto found = std::find_if(expected.begin(), expected.end(), of_sender);
        if (found == expected.end()) {
            life.violate("a message has come from rank " + std::to_string(going.received.source) + ", which sends none");
        }
        check(life, going.memory, **found, going.received, (*found)->from);
        expected.erase(found);
    }
}

void receive_never(Life &life, Chance &own) {
    Going going(life, life.world());
    going.memory.assign(1, kUntouched);
    const std::int32_t from = own.one_in(2) ? MUSTER_ANY_SOURCE : own.whole(life.options.ranks);
    life.make("to start to receive what nobody sends", [&] {
        return muster_irecv(life.world(), going.memory.data(), 1, MUSTER_UINT8, from, kNever, nullptr, 0, &going.request);
    }, going.group);
    muster_status_t status = life.attempt("to wait for 5 ms", [&] { return muster_request_wait(going.request, 5); });
    if (status == MUSTER_IN_PROGRESS) {
        life.make("to cancel", [&] { return muster_request_cancel(going.request); });
        status = life.attempt("to wait for what was cancelled", [&] { return muster_request_wait(going.request, -1); });
    }
    if (status == MUSTER_OK || going.memory[0] != kUntouched) {
        life.violate("something has come that nobody sends");
    }
    if (status != MUSTER_ERR_ABORTED) {
        life.judge("to receive what nobody sends", status);
        throw CallFailed{status};
    }
    muster_request_free(going.request);
    going.request = nullptr;
}

void shift(Life &life, int step, std::uint64_t key, Chance &own) {
    const int size = life.options.ranks, by = 1 + static_cast<int>(key % static_cast<std::uint64_t>(size));
    const int to = (life.rank + by) % size, from = (life.rank + size - by % size) % size;
    const auto length = [&](int rank) { return key_of(key, rank) % (key % 7 == 0 ? 300'000 : 3'000); };
    Message coming{};
    coming.from = from;
    coming.to = life.rank;
    coming.group = kWorldGroup;
    coming.tag = kShift + step;
    coming.count = length(from);
    coming.key = key_of(key, from, 1);
    const Bytes out = filled(key_of(key, life.rank, 1), length(life.rank));
    Going going(life, life.world());
    going.memory.assign(coming.count + kGuard, kUntouched);
    const std::int32_t source = own.one_in(2) ? MUSTER_ANY_SOURCE : from;
    if (own.one_in(2)) {
        life.make("sendrecv", [&] {
            return muster_sendrecv(life.world(), out.data(), out.size(), MUSTER_UINT8, to, coming.tag, going.memory.data(),
                                   coming.count, MUSTER_UINT8, source, coming.tag, &going.received, sizeof going.received);
        }, going.group);
    } else {
        life.make("isendrecv", [&] {
            return muster_isendrecv(life.world(), out.data(), out.size(), MUSTER_UINT8, to, coming.tag, going.memory.data(),
                                    coming.count, MUSTER_UINT8, source, coming.tag, &going.received, sizeof going.received,
                                    &going.request);
        }, going.group);
        end(going, "isendrecv");
    }
    check(life, going.memory, coming, going.received, from);
}
