/* Records what a process does to the files under $SHIM_ROOT, in order, into $SHIM_LOG: preloaded by power_loss.rs.
 *
 * A record: op (u32), two names' lengths (u32 each), data length (u32), inode (u64), offset (u64), then the names
 * and the data. A sync has two records, at its begin and at its return: only what was written before the begin is
 * covered, and only once the return is there. While the file that $SHIM_FAIL names exists, writes below a
 * directory log/ fail with ENOSPC (it holds the word "full") and syncs with EIO ("sync").
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { OP_CREATE = 1, OP_WRITE, OP_TRUNCATE, OP_SYNC_BEGIN, OP_SYNC_END, OP_RENAME, OP_REMOVE, OP_MKDIR, OP_RANGE };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *root;
static size_t root_len;
static int out = -1;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int ready(void) {
    if (!root) {
        root = getenv("SHIM_ROOT");
        const char *path = getenv("SHIM_LOG");
        if (!root || !path) { root = NULL; return 0; }
        root_len = strlen(root);
        int (*real_open)(const char *, int, ...) = dlsym(RTLD_NEXT, "open");
        out = real_open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    }
    return out >= 0;
}

static int under(const char *path) {
    return strncmp(path, root, root_len) == 0 && (path[root_len] == '/' || path[root_len] == 0);
}

static int path_of(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, path, 4095);
    if (len <= 0) return 0;
    path[len] = 0;
    return under(path);
}

static uint64_t inode_of(int fd) {
    struct stat meta;
    return fstat(fd, &meta) == 0 ? (uint64_t)meta.st_ino : 0;
}

static void record(uint32_t op, const char *a, const char *b, uint64_t inode, uint64_t at, const void *data, size_t len) {
    struct { uint32_t op, a, b, len; uint64_t inode, at; } head = {
        op, a ? (uint32_t)strlen(a) : 0, b ? (uint32_t)strlen(b) : 0, data ? (uint32_t)len : 0, inode, at };
    if (!data) head.at = op == OP_TRUNCATE ? len : at;
    struct iovec parts[4] = {
        { &head, sizeof head }, { (void *)a, head.a }, { (void *)b, head.b }, { (void *)data, head.len } };
    ssize_t (*real)(int, const struct iovec *, int) = dlsym(RTLD_NEXT, "writev");
    if (real(out, parts, 4) < 0) abort();
}

static int fails(const char *how, const char *file) {
    const char *path = getenv("SHIM_FAIL");
    if (!path || !strstr(file, "/log/")) return 0;
    int (*real_open)(const char *, int, ...) = dlsym(RTLD_NEXT, "open");
    int fd = real_open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    char text[16] = { 0 };
    ssize_t got = read(fd, text, sizeof text - 1);
    REAL(close)(fd);
    return got > 0 && strstr(text, how) != NULL;
}

static int opened(int fd, const char *path, int flags, int existed) {
    if (fd >= 0 && ready() && under(path) && !S_ISDIR(({ struct stat m; fstat(fd, &m); m.st_mode; }))) {
        if (!existed) record(OP_CREATE, path, NULL, inode_of(fd), 0, NULL, 0);
        else if (flags & O_TRUNC) record(OP_TRUNCATE, NULL, NULL, inode_of(fd), 0, NULL, 0);
    }
    return fd;
}

#define OPEN(name)                                                                  \
    int name(const char *path, int flags, ...) {                                    \
        va_list args;                                                               \
        va_start(args, flags);                                                      \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(args, mode_t) : 0;     \
        va_end(args);                                                               \
        int (*real)(const char *, int, ...) = dlsym(RTLD_NEXT, #name);              \
        pthread_mutex_lock(&lock);                                                  \
        int existed = access(path, F_OK) == 0;                                      \
        int fd = opened(real(path, flags, mode), path, flags, existed);             \
        int error = errno;                                                          \
        pthread_mutex_unlock(&lock);                                                \
        errno = error;                                                              \
        return fd;                                                                  \
    }
OPEN(open)
OPEN(open64)

static ssize_t recorded_write(int fd, const void *data, size_t len, int64_t at, ssize_t (*real)(int, const void *, size_t, off64_t)) {
    char path[4096];
    ssize_t (*plain)(int, const void *, size_t) = dlsym(RTLD_NEXT, "write");
    if (!ready() || fd == out || !path_of(fd, path)) return real ? real(fd, data, len, at) : plain(fd, data, len);
    if (fails("full", path)) { errno = ENOSPC; return -1; }
    pthread_mutex_lock(&lock);
    int64_t offset = at;
    if (!real) {
        offset = fcntl(fd, F_GETFL) & O_APPEND ? lseek64(fd, 0, SEEK_END) : lseek64(fd, 0, SEEK_CUR);
    }
    ssize_t done = real ? real(fd, data, len, at) : plain(fd, data, len);
    int error = errno;
    if (done > 0) record(OP_WRITE, path, NULL, inode_of(fd), (uint64_t)offset, data, (size_t)done);
    pthread_mutex_unlock(&lock);
    errno = error;
    return done;
}

ssize_t write(int fd, const void *data, size_t len) { return recorded_write(fd, data, len, 0, NULL); }
ssize_t pwrite(int fd, const void *data, size_t len, off_t at) {
    return recorded_write(fd, data, len, at, dlsym(RTLD_NEXT, "pwrite64"));
}
ssize_t pwrite64(int fd, const void *data, size_t len, off64_t at) {
    return recorded_write(fd, data, len, at, dlsym(RTLD_NEXT, "pwrite64"));
}

static int recorded_truncate(int fd, off64_t len) {
    char path[4096];
    int (*real)(int, off64_t) = dlsym(RTLD_NEXT, "ftruncate64");
    if (!ready() || !path_of(fd, path)) return real(fd, len);
    pthread_mutex_lock(&lock);
    int result = real(fd, len);
    if (result == 0) record(OP_TRUNCATE, NULL, NULL, inode_of(fd), 0, NULL, (size_t)len);
    pthread_mutex_unlock(&lock);
    return result;
}
int ftruncate(int fd, off_t len) { return recorded_truncate(fd, len); }
int ftruncate64(int fd, off64_t len) { return recorded_truncate(fd, len); }

static int recorded_sync(int fd, int (*real)(int)) {
    char path[4096];
    if (!ready() || !path_of(fd, path)) return real(fd);
    if (fails("sync", path)) { errno = EIO; return -1; }
    pthread_mutex_lock(&lock);
    record(OP_SYNC_BEGIN, path, NULL, inode_of(fd), (uint64_t)pthread_self(), NULL, 0);
    pthread_mutex_unlock(&lock);
    int result = real(fd);
    if (result == 0) {
        pthread_mutex_lock(&lock);
        record(OP_SYNC_END, path, NULL, inode_of(fd), (uint64_t)pthread_self(), NULL, 0);
        pthread_mutex_unlock(&lock);
    }
    return result;
}
int fsync(int fd) { return recorded_sync(fd, dlsym(RTLD_NEXT, "fsync")); }
int fdatasync(int fd) { return recorded_sync(fd, dlsym(RTLD_NEXT, "fdatasync")); }

int sync_file_range(int fd, off64_t at, off64_t len, unsigned flags) {
    char path[4096];
    int (*real)(int, off64_t, off64_t, unsigned) = dlsym(RTLD_NEXT, "sync_file_range");
    if (ready() && path_of(fd, path)) {
        if (fails("sync", path)) { errno = EIO; return -1; }
        pthread_mutex_lock(&lock);
        record(OP_RANGE, path, NULL, inode_of(fd), (uint64_t)at, NULL, 0);
        pthread_mutex_unlock(&lock);
    }
    return real(fd, at, len, flags);
}

int rename(const char *from, const char *to) {
    pthread_mutex_lock(&lock);
    int result = REAL(rename)(from, to);
    int error = errno;
    if (result == 0 && ready() && under(to)) record(OP_RENAME, from, to, 0, 0, NULL, 0);
    pthread_mutex_unlock(&lock);
    errno = error;
    return result;
}

int mkdir(const char *path, mode_t mode) {
    pthread_mutex_lock(&lock);
    int result = REAL(mkdir)(path, mode);
    int error = errno;
    if (result == 0 && ready() && under(path)) record(OP_MKDIR, path, NULL, 0, 0, NULL, 0);
    pthread_mutex_unlock(&lock);
    errno = error;
    return result;
}

static void removed(const char *path) {
    if (ready() && under(path)) record(OP_REMOVE, path, NULL, 0, 0, NULL, 0);
}

int unlink(const char *path) {
    pthread_mutex_lock(&lock);
    int result = REAL(unlink)(path);
    int error = errno;
    if (result == 0) removed(path);
    pthread_mutex_unlock(&lock);
    errno = error;
    return result;
}

int rmdir(const char *path) {
    pthread_mutex_lock(&lock);
    int result = REAL(rmdir)(path);
    int error = errno;
    if (result == 0) removed(path);
    pthread_mutex_unlock(&lock);
    errno = error;
    return result;
}

int unlinkat(int dir, const char *name, int flags) {
    char path[8192];
    int known = ready() && (name[0] == '/' || dir == AT_FDCWD || path_of(dir, path));
    pthread_mutex_lock(&lock);
    int result = REAL(unlinkat)(dir, name, flags);
    int error = errno;
    if (result == 0 && known) {
        if (name[0] == '/' || dir == AT_FDCWD) {
            removed(name);
        } else {
            strncat(path, "/", sizeof path - strlen(path) - 1);
            strncat(path, name, sizeof path - strlen(path) - 1);
            removed(path);
        }
    }
    pthread_mutex_unlock(&lock);
    errno = error;
    return result;
}
