// What one rank does with the store in a step, and what it compares with the ledger: no acknowledged write is lost, none
// happens twice. A write is noted as intended before its call and as acknowledged after it. So at any moment
// acknowledged before the read  <=  what is read  <=  intended by the end of the read.
#pragma once

#include "chance.hpp"
#include "life.hpp"

void use_store(Life &life, Chance own);
// Checks while nobody writes: each key is what it must be, and exactly that if every write was acknowledged.
void check_store(Life &life);
