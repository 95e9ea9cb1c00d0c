/* A disk that fails as a test wants it to: preloaded into a whole broker, in the place of the system's calls.
 *
 * The file that FAILING_DISK names has one rule a line: "<operation> <error number> <text in the path>". A call of that
 * operation on a file whose path has the text fails with that error. Operations: write (also making a file or room in
 * one), sync, read. The operation slow delays each write to such a file by so many microseconds instead. The rules are read again whenever the file has changed, so a disk fills and empties as it is edited.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define MOST_RULES 16
static struct { char operation[8]; int error; char text[512]; } rules[MOST_RULES];
static int rule_count;
static struct timespec read_at;
static off_t read_size = -1;

static void *system_call(const char *name) { return dlsym(RTLD_NEXT, name); }

static void read_rules(void) {
    const char *path = getenv("FAILING_DISK");
    struct stat found;
    if (!path || stat(path, &found) != 0) { rule_count = 0; read_size = -1; return; }
    if (found.st_size == read_size && found.st_mtim.tv_sec == read_at.tv_sec && found.st_mtim.tv_nsec == read_at.tv_nsec)
        return;
    FILE *file = fopen(path, "re");
    if (!file) return;
    int count = 0;
    while (count < MOST_RULES &&
           fscanf(file, "%7s %d %511s", rules[count].operation, &rules[count].error, rules[count].text) == 3)
        count++;
    fclose(file);
    rule_count = count;
    read_size = found.st_size;
    read_at = found.st_mtim;
}

static int number_of_path(const char *operation, const char *path) {
    int before = errno;
    read_rules();
    errno = before;
    for (int i = 0; i < rule_count; i++)
        if (strcmp(rules[i].operation, operation) == 0 && strstr(path, rules[i].text)) return rules[i].error;
    return 0;
}

static int number_of(const char *operation, int fd) {
    char link[64], path[4096];
    int before = errno;
    read_rules();
    errno = before;
    if (!rule_count) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    errno = before;
    if (length <= 0) return 0;
    path[length] = 0;
    return number_of_path(operation, path);
}

static int error_of(const char *operation, int fd) {
    int delay_us = strcmp(operation, "write") == 0 ? number_of("slow", fd) : 0;
    if (delay_us) usleep(delay_us);
    return number_of(operation, fd);
}

#define FAIL_IF(operation, fd) do { int error = error_of(operation, fd); if (error) { errno = error; return -1; } } while (0)
#define REAL(type, name, ...) ((type (*)(__VA_ARGS__))system_call(name))

ssize_t write(int fd, const void *data, size_t size) {
    FAIL_IF("write", fd);
    return REAL(ssize_t, "write", int, const void *, size_t)(fd, data, size);
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
    FAIL_IF("write", fd);
    return REAL(ssize_t, "pwrite", int, const void *, size_t, off_t)(fd, data, size, at);
}
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
    FAIL_IF("write", fd);
    return REAL(ssize_t, "pwrite64", int, const void *, size_t, off64_t)(fd, data, size, at);
}
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) {
    FAIL_IF("write", fd);
    return REAL(ssize_t, "pwritev", int, const struct iovec *, int, off_t)(fd, parts, count, at);
}
ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t at) {
    FAIL_IF("write", fd);
    return REAL(ssize_t, "pwritev64", int, const struct iovec *, int, off64_t)(fd, parts, count, at);
}
ssize_t pwritev2(int fd, const struct iovec *parts, int count, off_t at, int flags) {
    FAIL_IF("write", fd);
    return REAL(ssize_t, "pwritev2", int, const struct iovec *, int, off_t, int)(fd, parts, count, at, flags);
}
ssize_t pwritev64v2(int fd, const struct iovec *parts, int count, off64_t at, int flags) {
    FAIL_IF("write", fd);
    return REAL(ssize_t, "pwritev64v2", int, const struct iovec *, int, off64_t, int)(fd, parts, count, at, flags);
}
int posix_fallocate(int fd, off_t at, off_t size) {
    int error = error_of("write", fd);
    return error ? error : REAL(int, "posix_fallocate", int, off_t, off_t)(fd, at, size);
}
int posix_fallocate64(int fd, off64_t at, off64_t size) {
    int error = error_of("write", fd);
    return error ? error : REAL(int, "posix_fallocate64", int, off64_t, off64_t)(fd, at, size);
}
int fsync(int fd) {
    FAIL_IF("sync", fd);
    return REAL(int, "fsync", int)(fd);
}
int fdatasync(int fd) {
    FAIL_IF("sync", fd);
    return REAL(int, "fdatasync", int)(fd);
}
ssize_t pread(int fd, void *data, size_t size, off_t at) {
    FAIL_IF("read", fd);
    return REAL(ssize_t, "pread", int, void *, size_t, off_t)(fd, data, size, at);
}
ssize_t pread64(int fd, void *data, size_t size, off64_t at) {
    FAIL_IF("read", fd);
    return REAL(ssize_t, "pread64", int, void *, size_t, off64_t)(fd, data, size, at);
}
ssize_t preadv64(int fd, const struct iovec *parts, int count, off64_t at) {
    FAIL_IF("read", fd);
    return REAL(ssize_t, "preadv64", int, const struct iovec *, int, off64_t)(fd, parts, count, at);
}
