/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * text -- what people write: URIs, addresses, sizes, and the target's configuration
 *
 * First byte of the input: which parser; the rest is the text.
 */
#include "fuzz.h"

#include <sys/mman.h>
#include <unistd.h>

#include "common/size.h"
#include "common/uri.h"
#include "target/config.h"

#define TEXT_MAX 65536

static char err[1024];

static void check_error(int r)
{
    FUZZ_CHECK(r <= 0);
    FUZZ_CHECK(memchr(err, '\0', sizeof(err)) != NULL);
    FUZZ_CHECK(r == 0 || err[0] != '\0');
}

static void uri(const char *text)
{
    struct rblk_uri parsed, again;
    char written[512];
    int r = rblk_uri_parse(&parsed, text, err, sizeof(err));

    FUZZ_CHECK(r == 0 || err[0] != '\0');
    if (r != 0)
        return;
    FUZZ_CHECK(parsed.host[0] != '\0' && parsed.port != 0);
    FUZZ_CHECK(parsed.volume[0] == '\0' || rblk_volume_name_valid(parsed.volume));
    FUZZ_CHECK((size_t)rblk_uri_format(written, sizeof(written), &parsed) < sizeof(written));
    FUZZ_CHECK(rblk_uri_parse(&again, written, err, sizeof(err)) == 0);
    FUZZ_CHECK(memcmp(&parsed, &again, sizeof(parsed)) == 0);
}

static void address(const char *text)
{
    char host[64];
    uint16_t port;

    if (rblk_address_parse(host, sizeof(host), &port, text, err, sizeof(err)) == 0)
        FUZZ_CHECK(strlen(host) < sizeof(host));
    else
        FUZZ_CHECK(err[0] != '\0');
}

static void size_text(const char *text)
{
    char written[64];
    uint64_t bytes, again, number;

    if (rblk_size_parse(&bytes, text) == 0) {
        rblk_size_format(written, sizeof(written), bytes);
        if (strchr(written, '.') == NULL && strstr(written, "byte") == NULL) {
            char *space = strchr(written, ' ');

            if (space != NULL)
                memmove(space, space + 1, strlen(space));
            FUZZ_CHECK(rblk_size_parse(&again, written) == 0 && again == bytes);
        }
    }
    if (rblk_number_parse(&number, text, 3, 70000) == 0)
        FUZZ_CHECK(number >= 3 && number <= 70000);
}

static void volume(const char *text)
{
    struct config config;

    config_init(&config);
    err[0] = '\0';
    check_error(config_add_volume(&config, text, err, sizeof(err)));
    if (config.volume_count > 0)
        FUZZ_CHECK(rblk_volume_name_valid(config.volumes[0].name));
    config_free(&config);
}

static void file(const char *text, size_t size)
{
    struct config config;
    char path[64];
    int fd = memfd_create("config", MFD_CLOEXEC);
    int r;

    FUZZ_CHECK(fd >= 0 && write(fd, text, size) == (ssize_t)size);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    config_init(&config);
    err[0] = '\0';
    r = config_load(&config, path, err, sizeof(err));
    FUZZ_CHECK(r <= 0 && (r == 0 || err[0] != '\0'));
    if (r == 0) {
        FUZZ_CHECK(config.queue_depth >= 1 && config.queue_depth <= RBLK_QUEUE_DEPTH_MAX);
        FUZZ_CHECK(config.max_queues >= 1 && config.max_queues <= RBLK_QUEUES_MAX);
        FUZZ_CHECK(config.inline_size <= RBLK_INLINE_MAX);
        FUZZ_CHECK(config.staging_size <= RBLK_STAGING_MAX);
        for (size_t i = 0; i < config.volume_count; i++)
            FUZZ_CHECK(rblk_volume_name_valid(config.volumes[i].name));
        err[0] = '\0';
        check_error(config_check(&config, err, sizeof(err)));
    }
    config_free(&config);
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    uint8_t which = fuzz_byte(&in) % 5;
    char *text;

    if (in.left > TEXT_MAX)
        return 0;
    text = malloc(in.left + 1);
    FUZZ_CHECK(text != NULL);
    memcpy(text, in.data, in.left);
    text[in.left] = '\0';
    switch (which) {
    case 0:
        uri(text);
        break;
    case 1:
        address(text);
        break;
    case 2:
        size_text(text);
        break;
    case 3:
        volume(text);
        break;
    default:
        file(text, in.left);
        break;
    }
    free(text);
    return 0;
}
