/* kload: one small load generator for anything that speaks the Kafka protocol.
 *
 * One thread, epoll, no client library: what it adds to a measurement is small and the same for every
 * broker, so two brokers can be compared side by side in one run.
 *
 *   gcc -O2 -o kload kload.c
 *   kload create  PORT TOPIC PARTITIONS
 *   kload first   PORT TOPIC                            (create, then one record: ends when it is acknowledged)
 *   kload produce PORT TOPIC PARTITIONS CONNS DEPTH SECONDS RECORDS RECORD_BYTES [ACKS [RATE]]
 *   kload fetch   PORT TOPIC PARTITIONS CONNS DEPTH SECONDS MAX_BYTES
 *   kload api     PORT x 1 CONNS DEPTH SECONDS          (ApiVersions v0 only: the request path without a log)
 *   kload e2e     PORT TOPIC 1 SECONDS RECORD_BYTES     (produce, then wait until a long-polling fetch sees it)
 *
 * DEPTH is the number of requests that each connection keeps in flight; with RATE, no more than so many requests a
 * second are sent in all. Correlation ids must come back in
 * order and every Produce/Fetch partition must carry error 0: anything else ends the run with exit status 1.
 * The last line of output is  key=value  pairs: req_s, mb_s, p50_us, p99_us, p999_us, max_us.
 * Versions used: CreateTopics 2, Produce 7, Fetch 11, ApiVersions 0 (all served by Kafka 2.3 to 4.x). */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PRODUCE = 0, FETCH = 1, API_VERSIONS = 18, CREATE_TOPICS = 19 };
enum { NO_ERROR = 0, UNKNOWN_TOPIC = 3, TOPIC_EXISTS = 36 };
enum { MAX_DEPTH = 256, MAX_SAMPLES = 20000000, HEAD_BYTES = 520, READ_BYTES = 1 << 20 };

static void die(const char *why) {
  fprintf(stderr, "kload: %s\n", why);
  exit(1);
}

static void die_of_error_code(int code) {
  fprintf(stderr, "kload: error code %d\n", code);
  exit(1);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}

/* ---- bytes of the wire ---- */

typedef struct {
  uint8_t *bytes;
  size_t size, capacity;
} buf_t;

static void put(buf_t *b, const void *data, size_t size) {
  if (b->size + size > b->capacity) {
    b->capacity = (b->size + size) * 2;
    b->bytes = realloc(b->bytes, b->capacity);
  }
  memcpy(b->bytes + b->size, data, size);
  b->size += size;
}

static void put_i8(buf_t *b, int value) {
  int8_t wire = value;
  put(b, &wire, 1);
}

static void put_i16(buf_t *b, int value) {
  uint16_t wire = htobe16(value);
  put(b, &wire, 2);
}

static void put_i32(buf_t *b, int64_t value) {
  uint32_t wire = htobe32(value);
  put(b, &wire, 4);
}

static void put_i64(buf_t *b, int64_t value) {
  uint64_t wire = htobe64(value);
  put(b, &wire, 8);
}

static void put_string(buf_t *b, const char *text) {
  put_i16(b, strlen(text));
  put(b, text, strlen(text));
}

static void put_varint(buf_t *b, int64_t value) {
  uint64_t zigzag = ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
  while (zigzag > 127) {
    put_i8(b, (zigzag & 127) | 128);
    zigzag >>= 7;
  }
  put_i8(b, zigzag);
}

static int get_i16(const uint8_t *p) { return (int16_t)(p[0] << 8 | p[1]); }

static uint32_t get_u32(const uint8_t *p) {
  uint32_t wire;
  memcpy(&wire, p, 4);
  return be32toh(wire);
}

static int64_t get_i64(const uint8_t *p) {
  int64_t wire;
  memcpy(&wire, p, 8);
  return (int64_t)be64toh(wire);
}

static uint32_t crc32c(const uint8_t *p, size_t size) {
  static uint32_t table[256];
  for (int i = 0; !table[255] && i < 256; i++) {
    uint32_t c = i;
    for (int bit = 0; bit < 8; bit++) c = c & 1 ? 0x82f63b78 ^ (c >> 1) : c >> 1;
    table[i] = c;
  }
  uint32_t crc = ~0u;
  while (size--) crc = table[(crc ^ *p++) & 255] ^ (crc >> 8);
  return ~crc;
}

/* ---- requests ---- */

static void put_record(buf_t *b, int index, const uint8_t *value, int value_bytes) {
  buf_t record = {0};
  put_i8(&record, 0);          /* attributes */
  put_varint(&record, 0);      /* timestamp delta */
  put_varint(&record, index);  /* offset delta */
  put_varint(&record, -1);     /* no key */
  put_varint(&record, value_bytes);
  put(&record, value, value_bytes);
  put_varint(&record, 0);      /* no headers */
  put_varint(b, record.size);
  put(b, record.bytes, record.size);
  free(record.bytes);
}

/* A record batch: magic 2, no compression, no producer id. */
static buf_t record_batch(int records, int record_bytes) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  int64_t wall_ms = t.tv_sec * 1000LL + t.tv_nsec / 1000000;
  uint8_t *value = malloc(record_bytes + 1);
  for (int i = 0; i < record_bytes; i++) value[i] = 'a' + (i * 31 + i / 7) % 26;
  buf_t body = {0};            /* what the CRC covers: from attributes on */
  put_i16(&body, 0);           /* attributes */
  put_i32(&body, records - 1); /* last offset delta */
  put_i64(&body, wall_ms);     /* base timestamp */
  put_i64(&body, wall_ms);     /* max timestamp */
  put_i64(&body, -1);          /* producer id */
  put_i16(&body, -1);          /* producer epoch */
  put_i32(&body, -1);          /* base sequence */
  put_i32(&body, records);
  for (int i = 0; i < records; i++) put_record(&body, i, value, record_bytes);
  buf_t batch = {0};
  put_i64(&batch, 0);                          /* base offset */
  put_i32(&batch, 4 + 1 + 4 + body.size);      /* batch length */
  put_i32(&batch, -1);                         /* partition leader epoch */
  put_i8(&batch, 2);                           /* magic */
  put_i32(&batch, crc32c(body.bytes, body.size));
  put(&batch, body.bytes, body.size);
  free(body.bytes);
  free(value);
  return batch;
}

static buf_t begin(int api_key, int api_version) {
  buf_t b = {0};
  put_i32(&b, 0); /* size: written by finish() */
  put_i16(&b, api_key);
  put_i16(&b, api_version);
  put_i32(&b, 0); /* correlation id */
  put_string(&b, "kload");
  return b;
}

static buf_t finish(buf_t b) {
  uint32_t size = htobe32(b.size - 4);
  memcpy(b.bytes, &size, 4);
  return b;
}

static buf_t produce_request(const char *topic, int partition, buf_t batch, int acks) {
  buf_t b = begin(PRODUCE, 7);
  put_i16(&b, -1); /* no transactional id */
  put_i16(&b, acks);
  put_i32(&b, 30000); /* timeout ms */
  put_i32(&b, 1);
  put_string(&b, topic);
  put_i32(&b, 1);
  put_i32(&b, partition);
  put_i32(&b, batch.size);
  put(&b, batch.bytes, batch.size);
  return finish(b);
}

static buf_t fetch_request(const char *topic, int partition, int64_t offset, int max_bytes, int max_wait_ms) {
  buf_t b = begin(FETCH, 11);
  put_i32(&b, -1); /* replica id: a consumer */
  put_i32(&b, max_wait_ms);
  put_i32(&b, 1); /* min bytes */
  put_i32(&b, max_bytes);
  put_i8(&b, 0);   /* read uncommitted */
  put_i32(&b, 0);  /* session id */
  put_i32(&b, -1); /* session epoch: no session */
  put_i32(&b, 1);
  put_string(&b, topic);
  put_i32(&b, 1);
  put_i32(&b, partition);
  put_i32(&b, -1); /* leader epoch unknown */
  put_i64(&b, offset);
  put_i64(&b, -1); /* log start offset */
  put_i32(&b, max_bytes);
  put_i32(&b, 0);     /* no forgotten topics */
  put_string(&b, ""); /* rack */
  return finish(b);
}

static buf_t create_topic_request(const char *topic, int partitions) {
  buf_t b = begin(CREATE_TOPICS, 2);
  put_i32(&b, 1);
  put_string(&b, topic);
  put_i32(&b, partitions);
  put_i16(&b, 1);     /* replication factor */
  put_i32(&b, 0);     /* no assignment */
  put_i32(&b, 0);     /* no configs */
  put_i32(&b, 30000); /* timeout ms */
  put_i8(&b, 0);      /* not validate-only */
  return finish(b);
}

/* Where the first partition's error code stands in a whole answer frame. */
static size_t error_offset(int api_key, const char *topic) {
  size_t in_partition = 4 + 2 + strlen(topic) + 4 + 4; /* topic count, name, partition count, index */
  if (api_key == PRODUCE) return 8 + in_partition;
  return 8 + 4 + 2 + 4 + in_partition; /* Fetch: throttle, error, session id come first */
}

/* ---- connections ---- */

static int dial(int port) {
  int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
  struct sockaddr_in address = {
      .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  if (connect(fd, (void *)&address, sizeof address)) die("cannot connect");
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return fd;
}

static void send_all(int fd, const uint8_t *bytes, size_t count) {
  while (count) {
    ssize_t written = write(fd, bytes, count);
    if (written <= 0) die("write failed");
    bytes += written;
    count -= written;
  }
}

static void receive_all(int fd, uint8_t *bytes, size_t count) {
  while (count) {
    ssize_t got = read(fd, bytes, count);
    if (got <= 0) die("connection closed");
    bytes += got;
    count -= got;
  }
}

static buf_t receive_answer(int fd) { /* without its size */
  uint8_t head[4];
  receive_all(fd, head, 4);
  size_t size = get_u32(head);
  buf_t answer = {malloc(size), size, size};
  receive_all(fd, answer.bytes, size);
  return answer;
}

static buf_t call(int fd, buf_t request) {
  send_all(fd, request.bytes, request.size);
  return receive_answer(fd);
}

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
  printf("req_s=%.0f mb_s=%.1f p50_us=%.0f p99_us=%.0f p999_us=%.0f max_us=%.0f\n", requests / seconds,
         bytes / seconds / 1e6, quantile_us(.5), quantile_us(.99), quantile_us(.999), quantile_us(1));
}

/* ---- produce, fetch, api: many connections, DEPTH requests in flight on each ---- */

typedef struct {
  int fd;
  buf_t request;
  uint32_t sent_id, want_id;
  double sent_at[MAX_DEPTH];
  uint8_t head[HEAD_BYTES]; /* the first bytes of the answer being read; the rest is only counted */
  uint32_t have, size;
} conn_t;

typedef struct {
  int api_key, conns, depth;
  double seconds, rate, requests_done, bytes_done;
  size_t bytes_per_request, error_at;
} load_t;

static void fire(conn_t *conn) {
  uint32_t id = htobe32(conn->sent_id);
  memcpy(conn->request.bytes + 8, &id, 4);
  conn->sent_at[conn->sent_id++ % MAX_DEPTH] = now();
  send_all(conn->fd, conn->request.bytes, conn->request.size);
}

static void check_answer(load_t *load, conn_t *conn) {
  if (get_u32(conn->head + 4) != conn->want_id) die("correlation ids out of order");
  if (load->api_key != API_VERSIONS && get_i16(conn->head + load->error_at))
    die_of_error_code(get_i16(conn->head + load->error_at));
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

static void run(int argc, char **argv, int api_key) {
  int port = atoi(argv[2]), partitions = atoi(argv[4]);
  const char *topic = argv[3];
  load_t load = {.api_key = api_key, .conns = atoi(argv[5]), .depth = atoi(argv[6]), .seconds = atof(argv[7])};
  if (load.depth > MAX_DEPTH) die("DEPTH is at most 256");
  if (strlen(topic) > 249) die("TOPIC is at most 249 characters");
  load.error_at = error_offset(api_key, topic);
  buf_t batch = {0};
  if (api_key == PRODUCE) batch = record_batch(atoi(argv[8]), atoi(argv[9]));
  load.bytes_per_request = batch.size;
  int acks = api_key == PRODUCE && argc > 10 ? atoi(argv[10]) : 1;
  load.rate = api_key == PRODUCE && argc > 11 ? atof(argv[11]) : 0;
  int epoll = epoll_create1(0);
  conn_t *conns = calloc(load.conns, sizeof *conns);
  for (int i = 0; i < load.conns; i++) {
    conn_t *conn = &conns[i];
    conn->fd = dial(port);
    if (api_key == PRODUCE) conn->request = produce_request(topic, i % partitions, batch, acks);
    else if (api_key == FETCH) conn->request = fetch_request(topic, i % partitions, 0, atoi(argv[8]), 500);
    else conn->request = finish(begin(API_VERSIONS, 0));
    struct epoll_event event = {EPOLLIN, {.u32 = i}};
    epoll_ctl(epoll, EPOLL_CTL_ADD, conn->fd, &event);
  }
  pump(&load, conns, epoll);
}

/* ---- create, first, e2e ---- */

static int create(int port, const char *topic, int partitions) {
  int fd = dial(port);
  buf_t answer = call(fd, create_topic_request(topic, partitions));
  int error = get_i16(answer.bytes + 4 + 4 + 4 + 2 + strlen(topic));
  if (error && error != TOPIC_EXISTS) die_of_error_code(error);
  return fd;
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

int main(int argc, char **argv) {
  samples = malloc(sizeof *samples * MAX_SAMPLES);
  const char *command = argc > 1 ? argv[1] : "";
  if (argc == 5 && !strcmp(command, "create")) {
    create(atoi(argv[2]), argv[3], atoi(argv[4]));
    usleep(500000); /* Kafka answers before every one of its threads knows the topic */
  } else if (argc == 4 && !strcmp(command, "first")) first(atoi(argv[2]), argv[3]);
  else if (argc >= 10 && !strcmp(command, "produce")) run(argc, argv, PRODUCE);
  else if (argc == 9 && !strcmp(command, "fetch")) run(argc, argv, FETCH);
  else if (argc == 8 && !strcmp(command, "api")) run(argc, argv, API_VERSIONS);
  else if (argc == 7 && !strcmp(command, "e2e")) e2e(atoi(argv[2]), argv[3], atof(argv[5]), atoi(argv[6]));
  else die("usage: see the comment at the top of kload.c");
  return 0;
}
