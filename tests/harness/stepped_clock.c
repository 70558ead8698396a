// A wall clock that is ahead by what a file says: the first eight bytes of CLOCK_STEP_FILE, seconds, signed. Preloaded.
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static volatile long *ahead;

__attribute__((constructor)) static void map_step(void) {
    const char *path = getenv("CLOCK_STEP_FILE");
    int file = path ? open(path, O_RDONLY) : -1;
    if (file < 0) return;
    void *mapped = mmap(NULL, sizeof(long), PROT_READ, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED) ahead = mapped;
    close(file);
}

// The system call itself: who is called by an allocator must not allocate.
int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    if (!failed && ahead && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += *ahead;
    return failed;
}
