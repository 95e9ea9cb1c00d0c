/* gload: the load of many small consumer groups, for measuring what they cost everybody else.
 *
 * One thread, epoll, no client library, like kload beside it.
 *
 *   gcc -O2 -o gload gload.c
 *   gload PORT TOPIC GROUPS CONNS HEARTBEAT_MS OFFSETS_PER_SECOND OFFSETS_PER_COMMIT
 *
 * Each group gets two members, on two connections, by JoinGroup and SyncGroup. It prints "ready" once all of them are stable and have
 * committed and sent a heartbeat once. From "g" on its input until the next "p", every member sends a Heartbeat every
 * HEARTBEAT_MS, and OffsetCommits of the topic's first OFFSETS_PER_COMMIT partitions go round the members, as many as
 * make OFFSETS_PER_SECOND; so what they cost others shows in turns, without forming the groups for each. Answers must
 * come back in order and without an error: anything else ends the run with exit status 1. At the end of its input all
 * members leave, so that the next run need not wait for them.
 * The last line of output is  key=value  pairs: heartbeats, commits, unanswered.
 * Versions used: FindCoordinator 1, JoinGroup 2, SyncGroup 1, Heartbeat 1, OffsetCommit 7, LeaveGroup 1. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { OFFSET_COMMIT = 8, FIND_COORDINATOR = 10, JOIN_GROUP = 11, HEARTBEAT = 12, LEAVE_GROUP = 13, SYNC_GROUP = 14 };
enum { MAX_PARTITIONS = 32, REBALANCE_IN_PROGRESS = 27 };
enum { MEMBERS = 2, MAX_ID = 128, BUFFER_BYTES = 1 << 16, TICK_MS = 5, MAX_EVENTS = 256, DRAIN_MS = 10000, SESSION_MS = 30000 };

typedef struct {
  char id[MAX_ID];
  int connection;
} member_t;

typedef struct {
  char name[32];
  int32_t generation;
  int64_t offset;
  member_t members[MEMBERS];
} group_t;

typedef struct {
  int fd;
  uint8_t out[BUFFER_BYTES], in[BUFFER_BYTES];
  size_t out_size, in_size;
  int32_t next_sent, next_answered;
  uint8_t *kinds; /* api key by correlation id, modulo KINDS */
} connection_t;

enum { KINDS = 1 << 16 };

static void die(const char *why) {
  fprintf(stderr, "gload: %s\n", why);
  exit(1);
}

static void die_of_error_code(int api_key, int code) {
  fprintf(stderr, "gload: api key %d answered error code %d\n", api_key, code);
  exit(1);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}

/* ---- bytes of the wire ---- */

static uint8_t *put16(uint8_t *p, int16_t v) {
  uint16_t w = htobe16(v);
  memcpy(p, &w, 2);
  return p + 2;
}

static uint8_t *put32(uint8_t *p, int32_t v) {
  uint32_t w = htobe32(v);
  memcpy(p, &w, 4);
  return p + 4;
}

static uint8_t *put64(uint8_t *p, int64_t v) {
  uint64_t w = htobe64(v);
  memcpy(p, &w, 8);
  return p + 8;
}

static uint8_t *put_string(uint8_t *p, const char *s) {
  size_t n = strlen(s);
  p = put16(p, n);
  memcpy(p, s, n);
  return p + n;
}

static int16_t get16(const uint8_t *p) {
  uint16_t w;
  memcpy(&w, p, 2);
  return be16toh(w);
}

static int32_t get32(const uint8_t *p) {
  uint32_t w;
  memcpy(&w, p, 4);
  return be32toh(w);
}

/* Begin a request in the connection's output; end_request fills in its size. */
static uint8_t *begin_request(connection_t *c, int16_t api_key, int16_t version) {
  if (c->out_size + 1024 > BUFFER_BYTES) die("output buffer is full: the broker does not keep up");
  uint8_t *p = c->out + c->out_size + 4;
  p = put16(p, api_key);
  p = put16(p, version);
  c->kinds[c->next_sent % KINDS] = api_key;
  p = put32(p, c->next_sent++);
  return put_string(p, "gload");
}

static void end_request(connection_t *c, uint8_t *end) {
  uint8_t *start = c->out + c->out_size;
  put32(start, end - start - 4);
  c->out_size = end - c->out;
}

static void write_out(connection_t *c) {
  size_t done = 0;
  while (done < c->out_size) {
    ssize_t n = write(c->fd, c->out + done, c->out_size - done);
    if (n < 0 && errno == EAGAIN) break;
    if (n < 0) die("connection lost while writing");
    done += n;
  }
  memmove(c->out, c->out + done, c->out_size - done);
  c->out_size -= done;
}

/* ---- requests ---- */

static void send_join(connection_t *c, const group_t *g, int member) {
  uint8_t *p = begin_request(c, JOIN_GROUP, 2);
  p = put_string(p, g->name);
  p = put32(p, SESSION_MS);
  p = put32(p, SESSION_MS);
  p = put_string(p, g->members[member].id);
  p = put_string(p, "consumer");
  p = put32(p, 1);
  p = put_string(p, "range");
  p = put32(p, 0);
  end_request(c, p);
}

static void send_sync(connection_t *c, const group_t *g, int member, int is_leader) {
  uint8_t *p = begin_request(c, SYNC_GROUP, 1);
  p = put_string(p, g->name);
  p = put32(p, g->generation);
  p = put_string(p, g->members[member].id);
  p = put32(p, is_leader ? MEMBERS : 0);
  for (int m = 0; is_leader && m < MEMBERS; m++) {
    p = put_string(p, g->members[m].id);
    p = put32(p, 0);
  }
  end_request(c, p);
}

static void send_heartbeat(connection_t *c, const group_t *g, int member) {
  uint8_t *p = begin_request(c, HEARTBEAT, 1);
  p = put_string(p, g->name);
  p = put32(p, g->generation);
  p = put_string(p, g->members[member].id);
  end_request(c, p);
}

static void send_commit(connection_t *c, group_t *g, int member, const char *topic, int partitions) {
  uint8_t *p = begin_request(c, OFFSET_COMMIT, 7);
  p = put_string(p, g->name);
  p = put32(p, g->generation);
  p = put_string(p, g->members[member].id);
  p = put16(p, -1);
  p = put32(p, 1);
  p = put_string(p, topic);
  p = put32(p, partitions);
  g->offset++;
  for (int partition = 0; partition < partitions; partition++) {
    p = put32(p, partition);
    p = put64(p, g->offset);
    p = put32(p, -1);
    p = put_string(p, "");
  }
  end_request(c, p);
}

/* ---- the set-up: one request at a time, blocking ---- */

/* Read one answer; returns what follows its correlation id. */
static const uint8_t *answer(connection_t *c) {
  static uint8_t frame[BUFFER_BYTES];
  uint8_t head[4];
  if (recv(c->fd, head, 4, MSG_WAITALL) != 4) die("connection lost");
  int32_t size = get32(head);
  if (size < 4 || size > BUFFER_BYTES) die("answer of a strange size");
  if (recv(c->fd, frame, size, MSG_WAITALL) != size) die("connection lost");
  if (get32(frame) != c->next_answered++) die("answers out of order");
  return frame + 4;
}

static const uint8_t *skip_string(const uint8_t *p) {
  int16_t n = get16(p);
  return p + 2 + (n > 0 ? n : 0);
}

static void joined(connection_t *c, group_t *g, int member) {
  const uint8_t *p = answer(c) + 4;
  if (get16(p)) die_of_error_code(JOIN_GROUP, get16(p));
  g->generation = get32(p + 2);
  p = skip_string(skip_string(p + 6));
  int16_t n = get16(p);
  if (n <= 0 || n >= MAX_ID) die("member id of a strange size");
  memcpy(g->members[member].id, p + 2, n);
  g->members[member].id[n] = 0;
}

static void synced(connection_t *c) {
  const uint8_t *p = answer(c) + 4;
  if (get16(p)) die_of_error_code(SYNC_GROUP, get16(p));
}

static int error_of(int api_key, const uint8_t *body);

static void told(connection_t *c, int api_key) {
  int error = error_of(api_key, answer(c));
  if (error) die_of_error_code(api_key, error);
}

/* Wait until a member is told that another one wants to join. */
static void await_rebalance(connection_t *c, const group_t *g, int member) {
  for (int error = 0; error != REBALANCE_IN_PROGRESS;) {
    send_heartbeat(c, g, member);
    write_out(c);
    error = error_of(HEARTBEAT, answer(c));
    if (error && error != REBALANCE_IN_PROGRESS) die_of_error_code(HEARTBEAT, error);
  }
}

/* Members of a group have connections of their own: a broker may read nothing behind a JoinGroup that waits. */
static void form(connection_t *cs, group_t *g, const char *topic, int partitions) {
  connection_t *of[MEMBERS] = {&cs[g->members[0].connection], &cs[g->members[1].connection]};
  send_join(of[0], g, 0);
  write_out(of[0]);
  joined(of[0], g, 0);
  /* The second member's JoinGroup is answered when the first has joined again. */
  send_join(of[1], g, 1);
  write_out(of[1]);
  await_rebalance(of[0], g, 0);
  send_join(of[0], g, 0);
  write_out(of[0]);
  joined(of[1], g, 1);
  joined(of[0], g, 0);
  for (int m = 0; m < MEMBERS; m++) {
    send_sync(of[m], g, m, m == 0);
    write_out(of[m]);
  }
  for (int m = 0; m < MEMBERS; m++) synced(of[m]);
  /* What is measured is not how members begin. */
  for (int m = 0; m < MEMBERS; m++) {
    send_commit(of[m], g, m, topic, partitions);
    send_heartbeat(of[m], g, m);
    write_out(of[m]);
  }
  for (int m = 0; m < MEMBERS; m++) {
    told(of[m], OFFSET_COMMIT);
    told(of[m], HEARTBEAT);
  }
}

static void leave(connection_t *c, const group_t *g, int member) {
  uint8_t *p = begin_request(c, LEAVE_GROUP, 1);
  p = put_string(p, g->name);
  p = put_string(p, g->members[member].id);
  end_request(c, p);
  write_out(c);
  const uint8_t *left = answer(c) + 4;
  if (get16(left)) die_of_error_code(LEAVE_GROUP, get16(left));
}

static void find_coordinator(connection_t *c) {
  uint8_t *p = begin_request(c, FIND_COORDINATOR, 1);
  p = put_string(p, "gload");
  *p++ = 0;
  end_request(c, p);
  write_out(c);
  const uint8_t *found = answer(c) + 4;
  if (get16(found)) die_of_error_code(FIND_COORDINATOR, get16(found));
}

static int connect_to(int port) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
  if (connect(fd, (struct sockaddr *)&address, sizeof address)) die("cannot connect");
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  return fd;
}

/* ---- the load ---- */

static int error_of(int api_key, const uint8_t *body) {
  if (api_key == HEARTBEAT) return get16(body + 4);
  /* OffsetCommit: throttle time, one topic by name, its partitions. */
  const uint8_t *p = skip_string(body + 8);
  for (int left = get32(p); left > 0; left--, p += 6)
    if (get16(p + 8)) return get16(p + 8);
  return 0;
}

static void take_answers(connection_t *c) {
  for (;;) {
    ssize_t n = read(c->fd, c->in + c->in_size, BUFFER_BYTES - c->in_size);
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) die("connection lost");
    c->in_size += n;
    size_t at = 0;
    while (c->in_size - at >= 4) {
      size_t size = get32(c->in + at);
      if (c->in_size - at < 4 + size) break;
      if (get32(c->in + at + 4) != c->next_answered) die("answers out of order");
      int api_key = c->kinds[c->next_answered++ % KINDS];
      int error = error_of(api_key, c->in + at + 8);
      if (error) die_of_error_code(api_key, error);
      at += 4 + size;
    }
    memmove(c->in, c->in + at, c->in_size - at);
    c->in_size -= at;
  }
}

/* Return the next command: 0 when none is there and it is not waited for, EOF when there are no more. */
static int next_command(int wait) {
  struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
  if (!poll(&input, 1, wait ? -1 : 0)) return 0;
  char command;
  return read(STDIN_FILENO, &command, 1) == 1 ? command : EOF;
}

/* Wait until everything has been answered. */
static void drain(connection_t *cs, int connections, int epoll) {
  struct epoll_event events[MAX_EVENTS];
  for (int i = 0; i < connections; i++)
    while (cs[i].next_answered < cs[i].next_sent) {
      write_out(&cs[i]);
      int n = epoll_wait(epoll, events, MAX_EVENTS, DRAIN_MS);
      if (!n) die("requests are not answered");
      for (int j = 0; j < n; j++) take_answers(&cs[events[j].data.u32]);
    }
}

int main(int argc, char **argv) {
  if (argc != 8) die("usage: gload PORT TOPIC GROUPS CONNS HEARTBEAT_MS OFFSETS_PER_SECOND OFFSETS_PER_COMMIT");
  int port = atoi(argv[1]), groups = atoi(argv[3]), connections = atoi(argv[4]);
  const char *topic = argv[2];
  int partitions = atoi(argv[7]);
  if (partitions < 1 || partitions > MAX_PARTITIONS) die("1 to 32 offsets per commit");
  if (connections < MEMBERS) die("2 connections at least");
  double heartbeat_s = atof(argv[5]) / 1000, commits_s = atof(argv[6]) / partitions;
  connection_t *cs = calloc(connections, sizeof *cs);
  group_t *gs = calloc(groups, sizeof *gs);
  int epoll = epoll_create1(0);
  for (int i = 0; i < connections; i++) {
    cs[i].fd = connect_to(port);
    cs[i].kinds = calloc(KINDS, 1);
  }
  find_coordinator(&cs[0]);
  for (int i = 0; i < groups; i++) {
    snprintf(gs[i].name, sizeof gs[i].name, "gload-%d", i);
    for (int m = 0; m < MEMBERS; m++) gs[i].members[m].connection = (i + m) % connections;
    form(cs, &gs[i], topic, partitions);
  }
  for (int i = 0; i < connections; i++) {
    fcntl(cs[i].fd, F_SETFL, O_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = i};
    epoll_ctl(epoll, EPOLL_CTL_ADD, cs[i].fd, &event);
  }
  puts("ready");
  fflush(stdout);
  double start = now(), heartbeats_s = groups * MEMBERS / heartbeat_s;
  long heartbeats = 0, commits = 0, unanswered = 0;
  struct epoll_event events[MAX_EVENTS];
  int command = 'p';
  while (command != EOF) {
    if (command == 'p') {
      for (int i = 0; i < connections; i++) unanswered += cs[i].next_sent - cs[i].next_answered;
      drain(cs, connections, epoll);
      double paused = now();
      while (command == 'p') command = next_command(1);
      start += now() - paused;
      continue;
    }
    double passed = now() - start;
    for (; heartbeats < passed * heartbeats_s; heartbeats++) {
      group_t *g = &gs[heartbeats / MEMBERS % groups];
      int member = heartbeats % MEMBERS;
      send_heartbeat(&cs[g->members[member].connection], g, member);
    }
    for (; commits < passed * commits_s; commits++) {
      group_t *g = &gs[commits % groups];
      int member = commits / groups % MEMBERS;
      send_commit(&cs[g->members[member].connection], g, member, topic, partitions);
    }
    for (int i = 0; i < connections; i++)
      if (cs[i].out_size) write_out(&cs[i]);
    /* Answers are read once a tick: to wake for each would take the broker's processors. */
    struct timespec tick = {.tv_nsec = TICK_MS * 1000000L};
    nanosleep(&tick, NULL);
    int n = epoll_wait(epoll, events, MAX_EVENTS, 0);
    for (int i = 0; i < n; i++) take_answers(&cs[events[i].data.u32]);
    int next = next_command(0);
    if (next) command = next;
  }
  drain(cs, connections, epoll);
  for (int i = 0; i < connections; i++) fcntl(cs[i].fd, F_SETFL, 0);
  for (int i = 0; i < groups; i++)
    for (int m = 0; m < MEMBERS; m++) leave(&cs[gs[i].members[m].connection], &gs[i], m);
  printf("heartbeats=%ld commits=%ld unanswered=%ld\n", heartbeats, commits, unanswered);
  return 0;
}
