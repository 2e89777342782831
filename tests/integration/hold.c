/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * hold -- attaches a volume, says "attached", and uses it a little until SIGTERM
 *
 *   hold [-m rw|ro|shared] [-k KEEPALIVE_MS] [-w WAIT_MS] URI
 *
 * -w: tries again for so long while somebody else has the volume; then says how long that took.
 * Status 0 after SIGTERM, 1 when it could not attach, 3 when I/O failed.
 */
#include <signal.h>
#include <unistd.h>

#include "helper.h"
#include "rblk.h"

#define PERIOD_MS 50
#define SPOT 512 /* bytes at the start of the volume that it reads or writes */

static volatile sig_atomic_t ended;

static void end(int number)
{
    (void)number;
    ended = 1;
}

static enum rblk_mode parse_mode(const char *text)
{
    if (strcmp(text, "rw") == 0)
        return RBLK_MODE_RW;
    if (strcmp(text, "ro") == 0)
        return RBLK_MODE_RO;
    if (strcmp(text, "shared") == 0)
        return RBLK_MODE_SHARED;
    helper_end(HELPER_USAGE, "no mode is called \"%s\"", text);
}

static struct rblk *attach(const char *uri, enum rblk_mode mode, unsigned int keepalive,
                           uint64_t wait_ms)
{
    uint64_t begun = helper_now();
    struct rblk *h;
    int error;

    for (;;) {
        if (rblk_create(&h) != 0)
            helper_fail("out of memory");
        if (rblk_set_mode(h, mode) != 0 || rblk_set_keepalive(h, keepalive) != 0)
            helper_fail("%s", rblk_error(h));
        error = rblk_connect(h, uri);
        if (error == 0)
            break;
        if (error != -EBUSY || helper_now() - begun >= wait_ms * 1000000u)
            helper_fail("%s (%s)", rblk_error(h), strerror(-error));
        rblk_close(h);
        helper_sleep_ms(20);
    }
    printf("attached after %llu ms\n", (unsigned long long)((helper_now() - begun) / 1000000u));
    fflush(stdout);
    return h;
}

int main(int argc, char **argv)
{
    enum rblk_mode mode = RBLK_MODE_RW;
    unsigned int keepalive = 5000;
    uint64_t wait_ms = 0;
    unsigned char spot[SPOT];
    struct rblk *h;
    int option, error = 0;

    helper_select_provider(argv);
    while ((option = getopt(argc, argv, "m:k:w:")) != -1) {
        switch (option) {
        case 'm':
            mode = parse_mode(optarg);
            break;
        case 'k':
            keepalive = (unsigned int)helper_number(optarg);
            break;
        case 'w':
            wait_ms = helper_number(optarg);
            break;
        default:
            return HELPER_USAGE;
        }
    }
    if (optind + 1 != argc)
        return HELPER_USAGE;
    signal(SIGTERM, end);
    h = attach(argv[optind], mode, keepalive, wait_ms);
    memset(spot, 'h', sizeof(spot));
    while (!ended && error == 0) {
        if (mode == RBLK_MODE_RO)
            error = rblk_pread(h, spot, sizeof(spot), 0);
        else
            error = rblk_pwrite(h, spot, sizeof(spot), 0, 0);
        if (error == 0)
            helper_sleep_ms(PERIOD_MS);
    }
    if (error != 0)
        fprintf(stderr, "hold: I/O failed: %s (%s)\n", rblk_error(h), strerror(-error));
    rblk_close(h);
    return error == 0 ? 0 : HELPER_IO_ERROR;
}
