/* wire: the bytes of Kafka's protocol and blocking calls, for programs of one C file. */
#pragma once
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

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
