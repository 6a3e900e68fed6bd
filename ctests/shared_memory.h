/* What the files of shared_memory share. */
#ifndef SHARED_MEMORY_H
#define SHARED_MEMORY_H

#include "ranks.h"

enum { SIZE = 4, CULPRIT = 2 };

/* Settings of a cluster that must share memory. */
extern const char *const required[];

/* How many segments this process has mapped. */
int segments(void);
/* Waits here; the parent lets all ranks go at once. */
void meet(struct ranks *ranks, int rank);
/* Makes so many calls that the group shares memory from then on, if it can. Afterwards no rank is in a call any more. */
void first_calls(muster_group_t *group, struct ranks *ranks, int rank);
/* Finalizes, and looks whether anything is left over. */
void leave(muster_cluster_t *cluster);
/* Runs a body that meets the others so often. */
void run(const char *what, rank_body body, const char *const *settings, int meetings, muster_status_t status);

/* In shared_memory_refused.c: all its cases. */
void where_it_cannot_be_had(void);

#endif
