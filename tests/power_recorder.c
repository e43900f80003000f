/* Records what a process does to the files below a folder: loaded before its libraries (LD_PRELOAD).
 *
 * POWER_ROOT is the folder, POWER_LOG the log. A record is a line "verb path [path or number] length" and that many
 * bytes. Verbs: open (created or there), write (at an offset), cut, sync, rename, unlink, mkdir.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static int log_file = -1;
static const char *root = NULL;

static int below(const char *path) {
    if (!root) {
        root = getenv("POWER_ROOT");
        if (!root) root = "";
    }
    size_t length = strlen(root);
    return length && !strncmp(path, root, length) && (path[length] == '/' || !path[length]);
}

static void record(const char *verb, const char *path, const char *more, const void *data, size_t length) {
    char line[3 * PATH_MAX];
    if (log_file < 0)
        log_file = syscall(SYS_openat, AT_FDCWD, getenv("POWER_LOG"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    int size = snprintf(line, sizeof line, "%s\t%s\t%s\t%zu\n", verb, path, more, length);
    struct iovec parts[2] = {{line, size}, {(void *)data, length}};
    if (syscall(SYS_writev, log_file, parts, 2) != (long)(size + length)) abort();
}

static int path_of(int file, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    long size = syscall(SYS_readlinkat, AT_FDCWD, link, path, PATH_MAX - 1);
    if (size <= 0) return 0;
    path[size] = 0;
    return below(path) && !strstr(path, " (deleted)");
}

static const char *absolute(int folder, const char *path, char *buffer) {
    if (path[0] == '/') return path;
    if (folder == AT_FDCWD) {
        if (!getcwd(buffer, PATH_MAX)) abort();
    } else {
        char link[64];
        snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
        long size = syscall(SYS_readlinkat, AT_FDCWD, link, buffer, PATH_MAX - 1);
        if (size <= 0) return path;
        buffer[size] = 0;
    }
    strcat(buffer, "/");
    strncat(buffer, path, PATH_MAX);
    return buffer;
}

static int opened(int folder, const char *name, int flags, mode_t mode) {
    char buffer[2 * PATH_MAX + 2];
    pthread_mutex_lock(&turn);
    int file = syscall(SYS_openat, folder, name, flags, mode);
    if (file >= 0 && (flags & (O_CREAT | O_TRUNC))) {
        const char *path = absolute(folder, name, buffer);
        if (below(path)) record("open", path, flags & O_TRUNC ? "new" : "old", "", 0);
    }
    pthread_mutex_unlock(&turn);
    return file;
}

#define MODE(flags) mode_t mode = 0; if ((flags) & (O_CREAT | O_TMPFILE)) { va_list rest; va_start(rest, flags); mode = va_arg(rest, int); va_end(rest); }
int open(const char *name, int flags, ...) { MODE(flags) return opened(AT_FDCWD, name, flags, mode); }
int open64(const char *name, int flags, ...) { MODE(flags) return opened(AT_FDCWD, name, flags, mode); }
int openat(int folder, const char *name, int flags, ...) { MODE(flags) return opened(folder, name, flags, mode); }
int openat64(int folder, const char *name, int flags, ...) { MODE(flags) return opened(folder, name, flags, mode); }

static long written(int file, const void *data, long size, long at, const char *path, int recorded) {
    char number[32];
    if (recorded && size > 0) {
        snprintf(number, sizeof number, "%ld", at);
        record("write", path, number, data, size);
    }
    return size;
}

ssize_t write(int file, const void *data, size_t length) {
    char path[PATH_MAX];
    if (!path_of(file, path)) return syscall(SYS_write, file, data, length);
    pthread_mutex_lock(&turn);
    long at = syscall(SYS_lseek, file, 0, SEEK_CUR);
    int flags = syscall(SYS_fcntl, file, F_GETFL);
    if (flags & O_APPEND) at = syscall(SYS_lseek, file, 0, SEEK_END);
    long size = syscall(SYS_write, file, data, length);
    written(file, data, size, at, path, 1);
    pthread_mutex_unlock(&turn);
    return size;
}

static ssize_t placed(int file, const void *data, size_t length, off_t at) {
    char path[PATH_MAX];
    if (!path_of(file, path)) return syscall(SYS_pwrite64, file, data, length, at);
    pthread_mutex_lock(&turn);
    long size = written(file, data, syscall(SYS_pwrite64, file, data, length, at), at, path, 1);
    pthread_mutex_unlock(&turn);
    return size;
}
ssize_t pwrite(int file, const void *data, size_t length, off_t at) { return placed(file, data, length, at); }
ssize_t pwrite64(int file, const void *data, size_t length, off_t at) { return placed(file, data, length, at); }

static int shortened(int file, off_t size) {
    char path[PATH_MAX], number[32];
    pthread_mutex_lock(&turn);
    int answer = syscall(SYS_ftruncate, file, size);
    if (!answer && path_of(file, path)) {
        snprintf(number, sizeof number, "%ld", (long)size);
        record("cut", path, number, "", 0);
    }
    pthread_mutex_unlock(&turn);
    return answer;
}
int ftruncate(int file, off_t size) { return shortened(file, size); }
int ftruncate64(int file, off_t size) { return shortened(file, size); }

static int synced(int file, long number) {
    char path[PATH_MAX];
    /* Recorded before it is done and by name: what is written meanwhile is not promised. */
    int known = path_of(file, path);
    if (known) pthread_mutex_lock(&turn);
    int answer = syscall(number, file);
    if (known) {
        if (!answer) record("sync", path, "", "", 0);
        pthread_mutex_unlock(&turn);
    }
    return answer;
}
int fsync(int file) { return synced(file, SYS_fsync); }
int fdatasync(int file) { return synced(file, SYS_fdatasync); }

int renameat(int from, const char *old, int to, const char *new) {
    char first[2 * PATH_MAX + 2], second[2 * PATH_MAX + 2];
    pthread_mutex_lock(&turn);
    int answer = syscall(SYS_renameat2, from, old, to, new, 0);
    const char *before = absolute(from, old, first), *after = absolute(to, new, second);
    if (!answer && below(before)) record("rename", before, after, "", 0);
    pthread_mutex_unlock(&turn);
    return answer;
}
int rename(const char *old, const char *new) { return renameat(AT_FDCWD, old, AT_FDCWD, new); }

int unlinkat(int folder, const char *name, int flags) {
    char buffer[2 * PATH_MAX + 2];
    pthread_mutex_lock(&turn);
    const char *path = absolute(folder, name, buffer);
    int answer = syscall(SYS_unlinkat, folder, name, flags);
    if (!answer && below(path)) record("unlink", path, "", "", 0);
    pthread_mutex_unlock(&turn);
    return answer;
}
int unlink(const char *name) { return unlinkat(AT_FDCWD, name, 0); }
int rmdir(const char *name) { return unlinkat(AT_FDCWD, name, AT_REMOVEDIR); }

int mkdirat(int folder, const char *name, mode_t mode) {
    char buffer[2 * PATH_MAX + 2];
    pthread_mutex_lock(&turn);
    const char *path = absolute(folder, name, buffer);
    int answer = syscall(SYS_mkdirat, folder, name, mode);
    if (!answer && below(path)) record("mkdir", path, "", "", 0);
    pthread_mutex_unlock(&turn);
    return answer;
}
int mkdir(const char *name, mode_t mode) { return mkdirat(AT_FDCWD, name, mode); }
