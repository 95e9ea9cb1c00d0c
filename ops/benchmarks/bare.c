/* bare: the least a server can do for kload's requests, in one C thread. Not a broker: a ruler.
 *
 * It frames requests and echoes correlation ids with an all-zero answer, and
 *   echo    does nothing else                       -> the limit for small requests through one core
 *   append  write()s every request to a file        -> the limit for produce (page cache included)
 *   file    answers every request by sendfile()     -> the limit for fetch (MAX_BYTES from FILE)
 *
 *   gcc -O2 -o bare bare.c
 *   bare PORT echo | bare PORT append FILE | bare PORT file FILE MAX_BYTES
 *
 * What append writes goes to FILE-0, and after a gigabyte to FILE-1 and so on: files as fresh as a log's segments.
 * Port 0 works; the port in use is the first line of output. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
  ANSWER_BYTES = 512,
  ANSWERS_PER_WRITE = 64,
  MAX_FD = 65536,
  BUFFER_BYTES = 4 << 20,
  FILE_SPAN = 1 << 30, /* append begins another file after so many bytes */
};

typedef struct {
  uint8_t *in;
  size_t have, capacity;
} conn_t;

typedef struct {
  int append, file; /* neither: echo */
  int fd;
  const char *append_to;
  int append_files;
  size_t appended; /* to the newest of these files */
  size_t answer_file_bytes;
} work_t;

static conn_t conns[MAX_FD];
static uint8_t answers[ANSWERS_PER_WRITE * ANSWER_BYTES];

static void die(const char *why) {
  perror(why);
  exit(1);
}

static void write_all(int fd, const uint8_t *bytes, size_t count) {
  while (count) {
    ssize_t written = write(fd, bytes, count);
    if (written <= 0) return;
    bytes += written;
    count -= written;
  }
}

static void send_file(int to, int from, size_t count) {
  off_t position = 0;
  while (count) {
    ssize_t sent = sendfile(to, from, &position, count);
    if (sent <= 0) return;
    count -= sent;
  }
}

static void begin_file(work_t *work) {
  char name[4096];
  snprintf(name, sizeof name, "%s-%d", work->append_to, work->append_files++);
  if (work->fd >= 0) close(work->fd);
  work->fd = open(name, O_CREAT | O_TRUNC | O_WRONLY, 0600);
  if (work->fd < 0) die("bare: append file");
  work->appended = 0;
}

static void append_request(work_t *work, const uint8_t *frame, size_t count) {
  if (work->appended + count > FILE_SPAN) begin_file(work);
  if (write(work->fd, frame, count) != (ssize_t)count) die("bare: append");
  work->appended += count;
}

/* Answers every whole request in the buffer; returns how many bytes of it are used up. */
static size_t answer_requests(int client, conn_t *conn, work_t *work) {
  size_t used = 0, waiting = 0;
  while (conn->have - used >= 12) {
    uint32_t size;
    memcpy(&size, conn->in + used, 4);
    size_t frame_bytes = (size_t)be32toh(size) + 4;
    if (frame_bytes > conn->capacity) {
      conn->capacity = frame_bytes + BUFFER_BYTES;
      conn->in = realloc(conn->in, conn->capacity);
    }
    if (conn->have - used < frame_bytes) break;
    if (work->append) append_request(work, conn->in + used, frame_bytes);
    uint8_t *answer = answers + waiting++ * ANSWER_BYTES;
    uint32_t answer_size = htobe32(ANSWER_BYTES - 4 + work->answer_file_bytes);
    memcpy(answer, &answer_size, 4);
    memcpy(answer + 4, conn->in + used + 8, 4); /* the correlation id */
    if (work->file || waiting == ANSWERS_PER_WRITE) {
      write_all(client, answers, waiting * ANSWER_BYTES);
      if (work->file) send_file(client, work->fd, work->answer_file_bytes);
      waiting = 0;
    }
    used += frame_bytes;
  }
  if (waiting) write_all(client, answers, waiting * ANSWER_BYTES);
  return used;
}

static void serve_client(int client, work_t *work) {
  conn_t *conn = &conns[client];
  ssize_t got = read(client, conn->in + conn->have, conn->capacity - conn->have);
  if (got <= 0) {
    close(client);
    return;
  }
  conn->have += got;
  size_t used = answer_requests(client, conn, work);
  memmove(conn->in, conn->in + used, conn->have - used);
  conn->have -= used;
}

static void watch(int epoll, int fd) {
  struct epoll_event event = {EPOLLIN, {.fd = fd}};
  epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

static void accept_client(int epoll, int listener) {
  int on = 1, client = accept(listener, 0, 0);
  if (client < 0 || client >= MAX_FD) die("accept");
  setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (!conns[client].in) {
    conns[client].in = malloc(BUFFER_BYTES);
    conns[client].capacity = BUFFER_BYTES;
  }
  conns[client].have = 0;
  watch(epoll, client);
}

static int listen_on(int port) {
  int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;
  struct sockaddr_in address = {
      .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t length = sizeof address;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(listener, (void *)&address, sizeof address) || listen(listener, 1024)) die("bare: listen");
  getsockname(listener, (void *)&address, &length);
  printf("%d\n", ntohs(address.sin_port));
  fflush(stdout);
  return listener;
}

static work_t parse_work(int argc, char **argv) {
  work_t work = {.fd = -1};
  work.append = argc == 4 && !strcmp(argv[2], "append");
  work.file = argc == 5 && !strcmp(argv[2], "file");
  if (!work.append && !work.file && !(argc == 3 && !strcmp(argv[2], "echo"))) {
    fprintf(stderr, "usage: bare PORT echo | bare PORT append FILE | bare PORT file FILE MAX_BYTES\n");
    exit(2);
  }
  if (work.append) {
    work.append_to = argv[3];
    begin_file(&work);
  }
  if (work.file) {
    work.fd = open(argv[3], O_RDONLY);
    if (work.fd < 0) die("bare: file");
    work.answer_file_bytes = strtoul(argv[4], 0, 10);
  }
  return work;
}

int main(int argc, char **argv) {
  signal(SIGPIPE, SIG_IGN); /* a load leaves while answers are under way, and others come after it */
  work_t work = parse_work(argc, argv);
  int listener = listen_on(atoi(argv[1])), epoll = epoll_create1(0);
  watch(epoll, listener);
  for (;;) {
    struct epoll_event events[256];
    int ready = epoll_wait(epoll, events, 256, -1);
    for (int i = 0; i < ready; i++) {
      if (events[i].data.fd == listener) accept_client(epoll, listener);
      else serve_client(events[i].data.fd, &work);
    }
  }
}
