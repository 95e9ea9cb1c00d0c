/* kload: one small load generator for anything that speaks the Kafka protocol.
 *
 * One thread, epoll, no client library: what it adds to a measurement is small and the same for every
 * broker, so two brokers can be compared side by side in one run.
 *
 *   gcc -O2 -o kload kload.c
 *   kload create    PORT TOPIC PARTITIONS [TOPICS]        (TOPIC, or so many: TOPIC-0, TOPIC-1, ...)
 *   kload first     PORT TOPIC                            (create, then one record: ends when it is acknowledged)
 *   kload produce   PORT TOPIC PARTITIONS CONNS DEPTH SECONDS RECORDS RECORD_BYTES [ACKS [RATE]]
 *   kload alternate PORT TOPIC PARTITIONS CONNS DEPTH SECONDS RECORDS RECORD_BYTES   (produce, another partition each)
 *   kload fetch     PORT TOPIC PARTITIONS CONNS DEPTH SECONDS MAX_BYTES
 *   kload offsets   PORT TOPIC PARTITIONS CONNS DEPTH SECONDS   (ListOffsets: the latest of one partition)
 *   kload metadata  PORT TOPIC TOPICS CONNS DEPTH SECONDS       (of so many topics: TOPIC-0, TOPIC-1, ...)
 *   kload commit    PORT TOPIC PARTITIONS CONNS DEPTH SECONDS   (one offset; a group of one member a connection)
 *   kload heartbeat PORT TOPIC PARTITIONS CONNS DEPTH SECONDS   (likewise)
 *   kload api       PORT x 1 CONNS DEPTH SECONDS          (ApiVersions v0 only: the request path without a log)
 *   kload e2e       PORT TOPIC 1 SECONDS RECORD_BYTES     (produce, then wait until a long-polling fetch sees it)
 *
 * DEPTH is the number of requests that each connection keeps in flight; with RATE, no more than so many requests a
 * second are sent in all. Correlation ids must come back in
 * order and every answer's first error code must be 0: anything else ends the run with exit status 1.
 * The last line of output is  key=value  pairs: req_s, mb_s, p50_us, p99_us, p999_us, max_us, requests. */
#include "requests.h"

#include <sys/epoll.h>

enum { MAX_DEPTH = 256, MAX_SAMPLES = 20000000, HEAD_BYTES = 520, READ_BYTES = 1 << 20, READY_SECONDS = 30 };

/* ---- figures ---- */

static float *samples;
static long sample_count;

static int by_value(const void *a, const void *b) {
  float x = *(const float *)a, y = *(const float *)b;
  return (x > y) - (x < y);
}

static void sample(double seconds) {
  if (sample_count < MAX_SAMPLES) samples[sample_count++] = seconds;
}

static double quantile_us(double q) {
  return sample_count ? samples[(long)((sample_count - 1) * q)] * 1e6 : 0.0;
}

static void report(double seconds, double requests, double bytes) {
  qsort(samples, sample_count, sizeof *samples, by_value);
  printf("req_s=%.0f mb_s=%.1f p50_us=%.0f p99_us=%.0f p999_us=%.0f max_us=%.0f requests=%.0f\n",
         requests / seconds, bytes / seconds / 1e6, quantile_us(.5), quantile_us(.99), quantile_us(.999),
         quantile_us(1), requests);
}

/* ---- many connections, DEPTH requests in flight on each ---- */

typedef struct {
  int fd;
  buf_t *requests; /* sent in turns */
  int request_count;
  size_t offset_at; /* where a request's number stands as an offset to commit; 0: nowhere */
  member_t member;
  uint32_t sent_id, want_id;
  double sent_at[MAX_DEPTH];
  uint8_t head[HEAD_BYTES]; /* the first bytes of the answer being read; the rest is only counted */
  uint32_t have, size;
} conn_t;

typedef struct {
  int api_key, alternates, port, partitions, conns, depth, acks;
  double seconds, rate, requests_done, bytes_done;
  size_t bytes_per_request, error_at;
} load_t;

static void fire(conn_t *conn) {
  buf_t request = conn->requests[conn->sent_id % conn->request_count];
  uint32_t id = htobe32(conn->sent_id);
  uint64_t offset = htobe64(conn->sent_id);
  memcpy(request.bytes + 8, &id, 4);
  if (conn->offset_at) memcpy(request.bytes + conn->offset_at, &offset, 8);
  conn->sent_at[conn->sent_id++ % MAX_DEPTH] = now();
  send_all(conn->fd, request.bytes, request.size);
}

static void check_answer(load_t *load, conn_t *conn) {
  if (get_u32(conn->head + 4) != conn->want_id) die("correlation ids out of order");
  if (get_i16(conn->head + load->error_at)) die_of_error_code(get_i16(conn->head + load->error_at));
  sample(now() - conn->sent_at[conn->want_id++ % MAX_DEPTH]);
  load->bytes_done += load->api_key == FETCH ? conn->size : load->bytes_per_request;
  conn->have = 0;
}

/* Walks the frames in the bytes just read; returns the number of answers that became whole. */
static int walk_answers(load_t *load, conn_t *conn, const uint8_t *bytes, ssize_t count) {
  int finished = 0;
  while (count) {
    if (conn->have < 4) {
      conn->head[conn->have++] = *bytes++;
      count--;
      if (conn->have == 4) conn->size = get_u32(conn->head);
      continue;
    }
    uint32_t left = conn->size + 4 - conn->have;
    uint32_t step = count < left ? count : left;
    if (conn->have < HEAD_BYTES) {
      uint32_t room = HEAD_BYTES - conn->have;
      memcpy(conn->head + conn->have, bytes, room < step ? room : step);
    }
    conn->have += step;
    bytes += step;
    count -= step;
    if (conn->have == conn->size + 4) {
      check_answer(load, conn);
      finished++;
    }
  }
  return finished;
}

/* Waits until the next request is due. */
static void pace(load_t *load, double start) {
  double early = load->rate > 0 ? start + load->requests_done / load->rate - now() : 0;
  if (early > 0) usleep(early * 1e6);
}

static void pump(load_t *load, conn_t *conns, int epoll) {
  static uint8_t in[READ_BYTES];
  double start = now();
  for (int i = 0; i < load->conns; i++)
    for (int k = 0; k < load->depth; k++) fire(&conns[i]);
  while (now() - start < load->seconds) {
    pace(load, start);
    struct epoll_event events[256];
    int ready = epoll_wait(epoll, events, 256, 1000);
    for (int j = 0; j < ready; j++) {
      conn_t *conn = &conns[events[j].data.u32];
      ssize_t got = read(conn->fd, in, sizeof in);
      if (got <= 0) die("connection closed by the broker");
      int finished = walk_answers(load, conn, in, got);
      load->requests_done += finished;
      while (finished--) fire(conn);
    }
  }
  report(now() - start, load->requests_done, load->bytes_done);
}

static int is_member(int api_key) { return api_key == OFFSET_COMMIT || api_key == HEARTBEAT; }

static buf_t request_of(load_t *load, conn_t *conn, const char *topic, int partition, char **more, buf_t batch) {
  switch (load->api_key) {
    case PRODUCE: return produce_request(topic, partition, batch, load->acks);
    case FETCH: return fetch_request(topic, partition, 0, atoi(more[0]), 500);
    case LIST_OFFSETS: return list_offsets_request(topic, partition);
    case METADATA: return metadata_request(topic, load->partitions);
    case OFFSET_COMMIT: return commit_request(&conn->member, topic, partition, &conn->offset_at);
    case HEARTBEAT: return heartbeat_request(&conn->member);
    default: return finish(begin(API_VERSIONS, 0));
  }
}

static void prepare(load_t *load, conn_t *conn, int number, const char *topic, char **more, buf_t batch) {
  conn->fd = dial(load->port);
  if (is_member(load->api_key)) join(conn->fd, &conn->member, number);
  conn->request_count = load->alternates ? load->partitions : 1;
  conn->requests = calloc(conn->request_count, sizeof *conn->requests);
  for (int i = 0; i < conn->request_count; i++)
    conn->requests[i] = request_of(load, conn, topic, (number + i) % load->partitions, more, batch);
}

static void run(int argc, char **argv, int api_key, int alternates) {
  const char *topic = argv[3];
  char **more = argv + 8;
  load_t load = {.api_key = api_key, .alternates = alternates, .port = atoi(argv[2]), .partitions = atoi(argv[4]),
                 .conns = atoi(argv[5]), .depth = atoi(argv[6]), .seconds = atof(argv[7]), .acks = 1};
  if (load.depth > MAX_DEPTH) die("DEPTH is at most 256");
  if (strlen(topic) >= MAX_NAME) die("TOPIC is at most 249 characters");
  if (load.partitions < 1) die("PARTITIONS and TOPICS are at least 1");
  buf_t batch = {0};
  if (api_key == PRODUCE) batch = record_batch(atoi(more[0]), atoi(more[1]));
  load.bytes_per_request = batch.size;
  if (argc > 10) load.acks = atoi(more[2]);
  if (argc > 11) load.rate = atof(more[3]);
  int epoll = epoll_create1(0);
  conn_t *conns = calloc(load.conns, sizeof *conns);
  for (int i = 0; i < load.conns; i++) {
    prepare(&load, &conns[i], i, topic, more, batch);
    struct epoll_event event = {EPOLLIN, {.u32 = i}};
    epoll_ctl(epoll, EPOLL_CTL_ADD, conns[i].fd, &event);
  }
  load.error_at = api_key == METADATA ? metadata_error_offset(load.port, conns[0].requests[0])
                                      : error_offset(api_key, topic);
  if (load.error_at + 2 > HEAD_BYTES) die("the first error code stands too far behind");
  pump(&load, conns, epoll);
  for (int i = 0; i < load.conns; i++) {
    close(conns[i].fd);
    if (is_member(api_key)) leave(load.port, &conns[i].member);
  }
}

/* ---- create, first, e2e ---- */

static int create(int port, const char *topic, int partitions) {
  int fd = dial(port);
  buf_t answer = call(fd, create_topic_request(topic, partitions));
  int error = get_i16(answer.bytes + 4 + 4 + 4 + 2 + strlen(topic));
  if (error && error != TOPIC_EXISTS) die_of_error_code(error);
  return fd;
}

/* Kafka answers before all of it knows the topic: waits until every partition has a leader that says so. */
static void await_leaders(int port, const char *topic, int partitions) {
  int fd = dial(port), error;
  double begun = now();
  for (int partition = 0; partition < partitions;) {
    buf_t request = list_offsets_request(topic, partition);
    buf_t answer = call(fd, request);
    error = get_i16(answer.bytes + error_offset(LIST_OFFSETS, topic) - 4); /* answers here come without their size */
    free(answer.bytes);
    free(request.bytes);
    if (!error) partition++;
    else if (now() - begun > READY_SECONDS) die_of_error_code(error);
    else usleep(RETRY_US);
  }
  close(fd);
}

static void first(int port, const char *topic) {
  int fd = create(port, topic, 1), error = UNKNOWN_TOPIC;
  buf_t request = produce_request(topic, 0, record_batch(1, 100), 1);
  while (error == UNKNOWN_TOPIC) {
    error = get_i16(call(fd, request).bytes + error_offset(PRODUCE, topic) - 4);
    if (error) usleep(500); /* the new topic is not known everywhere yet */
  }
  if (error) die_of_error_code(error);
}

static void e2e(int port, const char *topic, double seconds, int record_bytes) {
  int producer = dial(port), consumer = dial(port);
  buf_t batch = record_batch(1, record_bytes), request = produce_request(topic, 0, batch, 1);
  size_t error_at = error_offset(PRODUCE, topic) - 4; /* answers here come without their size */
  double start = now(), rounds = 0;
  buf_t produced = call(producer, request);
  for (;;) {
    if (get_i16(produced.bytes + error_at)) die_of_error_code(get_i16(produced.bytes + error_at));
    int64_t next_offset = get_i64(produced.bytes + error_at + 2) + 1;
    free(produced.bytes);
    if (now() - start >= seconds) break;
    buf_t fetch = fetch_request(topic, 0, next_offset, 1 << 20, 5000);
    send_all(consumer, fetch.bytes, fetch.size);
    usleep(500); /* let the fetch park first */
    double sent = now();
    send_all(producer, request.bytes, request.size);
    buf_t fetched = receive_answer(consumer);
    sample(now() - sent);
    rounds++;
    produced = receive_answer(producer);
    free(fetched.bytes);
    free(fetch.bytes);
  }
  report(now() - start, rounds, rounds * batch.size);
}

/* Commands with PORT TOPIC PARTITIONS CONNS DEPTH SECONDS, and how many arguments may follow. */
static const struct {
  const char *name;
  int api_key, alternates, least, most;
} LOADS[] = {
    {"produce", PRODUCE, 0, 2, 4},       {"alternate", PRODUCE, 1, 2, 2},   {"fetch", FETCH, 0, 1, 1},
    {"offsets", LIST_OFFSETS, 0, 0, 0},  {"metadata", METADATA, 0, 0, 0},   {"commit", OFFSET_COMMIT, 0, 0, 0},
    {"heartbeat", HEARTBEAT, 0, 0, 0},   {"api", API_VERSIONS, 0, 0, 0},
};

int main(int argc, char **argv) {
  samples = malloc(sizeof *samples * MAX_SAMPLES);
  const char *command = argc > 1 ? argv[1] : "";
  for (size_t i = 0; i < sizeof LOADS / sizeof *LOADS; i++)
    if (!strcmp(command, LOADS[i].name) && argc >= 8 + LOADS[i].least && argc <= 8 + LOADS[i].most) {
      run(argc, argv, LOADS[i].api_key, LOADS[i].alternates);
      return 0;
    }
  if ((argc == 5 || argc == 6) && !strcmp(command, "create")) {
    for (int i = 0; i < (argc == 6 ? atoi(argv[5]) : 1); i++) {
      const char *topic = argc == 6 ? numbered(argv[3], i) : argv[3];
      close(create(atoi(argv[2]), topic, atoi(argv[4])));
      await_leaders(atoi(argv[2]), topic, atoi(argv[4]));
    }
    usleep(500000); /* Rotunda's processes learn of a topic one after the other */
  } else if (argc == 4 && !strcmp(command, "first")) first(atoi(argv[2]), argv[3]);
  else if (argc == 7 && !strcmp(command, "e2e")) e2e(atoi(argv[2]), argv[3], atof(argv[5]), atoi(argv[6]));
  else die("usage: see the comment at the top of kload.c");
  return 0;
}
