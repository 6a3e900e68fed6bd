// The messages of a step, by the threads of a rank: one sends, one receives from senders that it names, one takes what
// comes. They cannot get stuck: each goes through one list in order, and the thread that takes whatever comes takes nothing
// else.
#pragma once

#include "groups.hpp"
#include "life.hpp"
#include "plan.hpp"

#include <vector>

void send_all(Life &life, const Groups &groups, const std::vector<Message> &messages, Chance own);
void receive_named(Life &life, const Groups &groups, const std::vector<Message> &messages, Chance own);
void take_what_comes(Life &life, const Groups &groups, const std::vector<Message> &messages, Chance own);
// A message that nobody sends does not come, and its receive is cancelled.
void receive_never(Life &life, Chance &own);
// Everybody sends to one rank and receives from another at once.
void shift(Life &life, int step, std::uint64_t key, Chance &own);
