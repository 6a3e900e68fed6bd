/* What can be counted of this process: threads, descriptors, memory. */
#ifndef OWN_H
#define OWN_H

#include <stdbool.h>

/* How many threads this process has, but for those of what simulates its processor (CTESTS_FOREIGN_THREADS). */
int own_threads(void);
/* Whether it has exactly so many threads, now or within two seconds: the kernel lists a thread a moment longer than it
 * lives. */
bool own_threads_are(int expected);
/* How many descriptors are open, those of standard input, output and error included. */
int own_descriptors(void);
/* Whether exactly so many are open, now or within two seconds: a node's own thread closes what is over. */
bool own_descriptors_are(int expected);
/* Whether one of the open descriptors is a socket, an epoll, an eventfd, a pidfd or a timer; says which on standard
 * error. */
bool own_sockets(void);
/* This thread is about to call: writes its number, of which own_thread_sleeps is told. */
void own_thread_calls(int *tid);
/* Returns once the thread of this number sleeps, which it does in its call. */
void own_thread_sleeps(const int *tid);
/* The memory that this process has resident, in bytes. */
long own_memory(void);

#endif
