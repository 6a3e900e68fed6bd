// What this process holds, as /proc tells.
#pragma once

int own_threads();
int own_descriptors();
