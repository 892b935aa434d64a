/* Faults of the machine, for test_faults.py: loaded into the broker with LD_PRELOAD.
 *
 *   cc -O1 -shared -fPIC -o faults.so faults.c -ldl
 *   LD_PRELOAD=faults.so TARRY_FAULTS=CONTROL TARRY_FAULTS_BELOW=/the/data/directory tarry serve ...
 *
 * CONTROL is a file that the test has made and maps too: its struct says what goes wrong now, and
 * counts what was met.  Calls on files below the directory are delayed, held, or fail; the wall
 * clock is shifted.  Everything else of the process goes its usual way.
 *
 * gettimeofday() is not shifted: RocksDB waits by it for moments of the kernel's clock, which this
 * file cannot shift. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* test_faults.py knows this layout. */
struct faults {
  int64_t clock_shift_ns;
  uint32_t delay_us;    /* Of each call. */
  uint32_t hang;        /* Not 0: calls wait until it is. */
  uint32_t fail_every;  /* Not 0: each read with this number fails, if its path contains `part`. */
  uint32_t reads;       /* Of such paths. */
  uint32_t failed;
  uint32_t journal, segments, databases;  /* Calls on these kinds of files. */
  char part[128];
};

static struct faults none;
static struct faults* faults = &none;
static const char* below = "";
static size_t below_length;

static ssize_t (*real_pread)(int, void*, size_t, off_t);
static ssize_t (*real_pwrite)(int, const void*, size_t, off_t);
static ssize_t (*real_preadv)(int, const struct iovec*, int, off_t);
static ssize_t (*real_pwritev)(int, const struct iovec*, int, off_t);
static ssize_t (*real_read)(int, void*, size_t);
static ssize_t (*real_write)(int, const void*, size_t);
static int (*real_fsync)(int);
static int (*real_fdatasync)(int);
static int (*real_sync_file_range)(int, off_t, off_t, unsigned);
static int (*real_fallocate)(int, int, off_t, off_t);
static int (*real_posix_fallocate)(int, off_t, off_t);
static int (*real_ftruncate)(int, off_t);
static int (*real_clock_gettime)(clockid_t, struct timespec*);

/* An allocator may read something before any constructor has run. */
static void find_real(void) {
#define REAL(name) *(void**)&real_##name = dlsym(RTLD_NEXT, #name)
  REAL(pread);
  REAL(pwrite);
  REAL(preadv);
  REAL(pwritev);
  REAL(read);
  REAL(write);
  REAL(fsync);
  REAL(fdatasync);
  REAL(sync_file_range);
  REAL(fallocate);
  REAL(posix_fallocate);
  REAL(ftruncate);
  REAL(clock_gettime);
#undef REAL
}

__attribute__((constructor)) static void begin(void) {
  find_real();
  const char* control = getenv("TARRY_FAULTS");
  const char* directory = getenv("TARRY_FAULTS_BELOW");
  if (control == NULL || directory == NULL) return;
  const int file = open(control, O_RDWR | O_CLOEXEC);
  if (file < 0) abort();
  void* mapped = mmap(NULL, sizeof(struct faults), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (mapped == MAP_FAILED) abort();
  below = directory;
  below_length = strlen(directory);
  faults = mapped;
}

static void pause_us(uint32_t time) {
  const struct timespec length = {time / 1000000, (long)(time % 1000000) * 1000};
  nanosleep(&length, NULL);
}

/* Before each call on a file; 1: it has to fail. */
static int meet(int file, int is_read) {
  if (real_ftruncate == NULL) find_real();
  if (below_length == 0) return 0;
  const int saved = errno;
  char link[32], path[512];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  const ssize_t length = readlink(link, path, sizeof path - 1);
  errno = saved;
  if (length <= (ssize_t)below_length || strncmp(path, below, below_length) != 0) return 0;
  path[length] = 0;
  const char* name = path + below_length;
  if (strncmp(name, "/journal/", 9) == 0) __atomic_add_fetch(&faults->journal, 1, __ATOMIC_RELAXED);
  if (strncmp(name, "/logs/", 6) == 0) __atomic_add_fetch(&faults->segments, 1, __ATOMIC_RELAXED);
  if (strncmp(name, "/db/", 4) == 0) __atomic_add_fetch(&faults->databases, 1, __ATOMIC_RELAXED);
  if (faults->delay_us != 0) pause_us(faults->delay_us);
  while (__atomic_load_n(&faults->hang, __ATOMIC_ACQUIRE) != 0) pause_us(2000);
  errno = saved;
  const uint32_t every = faults->fail_every;
  if (!is_read || every == 0 || strstr(name, faults->part) == NULL) return 0;
  if (__atomic_add_fetch(&faults->reads, 1, __ATOMIC_RELAXED) % every != 0) return 0;
  __atomic_add_fetch(&faults->failed, 1, __ATOMIC_RELAXED);
  errno = EIO;
  return 1;
}

ssize_t pread(int file, void* into, size_t size, off_t at) {
  return meet(file, 1) ? -1 : real_pread(file, into, size, at);
}
ssize_t pread64(int file, void* into, size_t size, off_t at) { return pread(file, into, size, at); }

ssize_t preadv(int file, const struct iovec* into, int count, off_t at) {
  return meet(file, 1) ? -1 : real_preadv(file, into, count, at);
}
ssize_t preadv64(int file, const struct iovec* into, int count, off_t at) {
  return preadv(file, into, count, at);
}

ssize_t read(int file, void* into, size_t size) {
  return meet(file, 1) ? -1 : real_read(file, into, size);
}

ssize_t pwrite(int file, const void* from, size_t size, off_t at) {
  return meet(file, 0) ? -1 : real_pwrite(file, from, size, at);
}
ssize_t pwrite64(int file, const void* from, size_t size, off_t at) {
  return pwrite(file, from, size, at);
}

ssize_t pwritev(int file, const struct iovec* from, int count, off_t at) {
  return meet(file, 0) ? -1 : real_pwritev(file, from, count, at);
}
ssize_t pwritev64(int file, const struct iovec* from, int count, off_t at) {
  return pwritev(file, from, count, at);
}

ssize_t write(int file, const void* from, size_t size) {
  return meet(file, 0) ? -1 : real_write(file, from, size);
}

int fsync(int file) { return meet(file, 0) ? -1 : real_fsync(file); }
int fdatasync(int file) { return meet(file, 0) ? -1 : real_fdatasync(file); }
int sync_file_range(int file, off_t at, off_t size, unsigned how) {
  return meet(file, 0) ? -1 : real_sync_file_range(file, at, size, how);
}
int fallocate(int file, int how, off_t at, off_t size) {
  return meet(file, 0) ? -1 : real_fallocate(file, how, at, size);
}
int fallocate64(int file, int how, off_t at, off_t size) { return fallocate(file, how, at, size); }
int posix_fallocate(int file, off_t at, off_t size) {
  return meet(file, 0) ? errno : real_posix_fallocate(file, at, size);
}
int posix_fallocate64(int file, off_t at, off_t size) { return posix_fallocate(file, at, size); }
int ftruncate(int file, off_t size) { return meet(file, 0) ? -1 : real_ftruncate(file, size); }
int ftruncate64(int file, off_t size) { return ftruncate(file, size); }

int clock_gettime(clockid_t clock, struct timespec* now) {
  if (real_clock_gettime == NULL) find_real();
  const int failed = real_clock_gettime(clock, now);
  if (failed == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
    const int64_t shift = __atomic_load_n(&faults->clock_shift_ns, __ATOMIC_RELAXED);
    now->tv_sec += shift / 1000000000;
    now->tv_nsec += shift % 1000000000;
    if (now->tv_nsec >= 1000000000) now->tv_sec += 1, now->tv_nsec -= 1000000000;
    if (now->tv_nsec < 0) now->tv_sec -= 1, now->tv_nsec += 1000000000;
  }
  return failed;
}
