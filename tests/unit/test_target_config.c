/* SPDX-License-Identifier: BSD-2-Clause */
/* test_target_config -- target/config.c: values, files, and which source wins */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "suite.h"
#include "target/config.h"

static struct config config;
static char err[1024];
static char file[64];

static void setup(void)
{
    int fd;

    config_init(&config);
    err[0] = '\0';
    snprintf(file, sizeof(file), "/tmp/test_target_config.XXXXXX");
    fd = mkstemp(file);
    ck_assert_int_ge(fd, 0);
    close(fd);
}

static void teardown(void)
{
    config_free(&config);
    unlink(file);
}

static int load(const char *text)
{
    FILE *f = fopen(file, "w");

    ck_assert_ptr_nonnull(f);
    fputs(text, f);
    fclose(f);
    return config_load(&config, file, err, sizeof(err));
}

static int set(const char *key, const char *value)
{
    return config_set(&config, key, value, CONFIG_COMMAND_LINE, err, sizeof(err));
}

/* The file is refused, and the message begins with "FILE:LINE: " and holds the text. */
static void expect_refused(const char *text, int line, const char *wanted)
{
    char start[96];

    config_free(&config);
    config_init(&config);
    ck_assert_int_eq(load(text), -EINVAL);
    snprintf(start, sizeof(start), "%s:%d: ", file, line);
    ck_assert_msg(strncmp(err, start, strlen(start)) == 0, "%s", err);
    ck_assert_msg(strstr(err, wanted) != NULL, "%s", err);
}

START_TEST(a_file_is_read)
{
    ck_assert_int_eq(load("# comment\n[target]\nlisten = 10.0.0.1\nlisten = [::1]:7000\n"
                          "threads = 3\nextent-size = 1M\n\n[volume a.b-c]\npath = /srv/x y\n"
                          "read-only = yes\n[volume z]\npath=/dev/sdz\n"),
                     0);
    ck_assert_uint_eq(config.listen_count, 2);
    ck_assert_str_eq(config.listen[1], "[::1]:7000");
    ck_assert_uint_eq(config.threads, 3);
    ck_assert_uint_eq(config.extent_size, 1u << 20);
    ck_assert_uint_eq(config.volume_count, 2);
    ck_assert_str_eq(config.volumes[0].name, "a.b-c");
    ck_assert_str_eq(config.volumes[0].path, "/srv/x y");
    ck_assert(config.volumes[0].read_only);
    ck_assert(!config.volumes[1].read_only);
    ck_assert_int_eq(config_check(&config, err, sizeof(err)), 0);
}
END_TEST

START_TEST(what_is_unknown_is_refused)
{
    expect_refused("[target]\nthreads = 2\nthread = 2\n", 3, "\"thread\"");
    expect_refused("[target]\n[targets]\n", 2, "[targets]");
    expect_refused("[volume a]\npath = /a\nro = yes\n", 3, "\"ro\"");
    expect_refused("threads = 2\n", 1, "\"threads\"");
    expect_refused("[target]\nthreads 2\n", 2, "neither");
    expect_refused("[target\n", 1, "neither");
}
END_TEST

START_TEST(bad_values_are_refused)
{
    expect_refused("[target]\nthreads = many\n", 2, "many");
    expect_refused("[target]\nqueue-depth = 257\n", 2, "1 to 256");
    expect_refused("[target]\nlisten = 1.2.3.4:99999\n", 2, "99999");
    expect_refused("[target]\nprovider = fast\n", 2, "fast");
    expect_refused("[volume a]\npath = /a\nread-only = perhaps\n", 3, "perhaps");
    expect_refused("[volume .a]\npath = /a\n", 1, ".a");
    expect_refused("[target]\nthreads = 1\nthreads = 2\n", 3, "twice");
    expect_refused("[volume a]\npath = /a\n[volume a]\n", 3, "twice");
    ck_assert_int_eq(config_load(&config, "/nonexistent/file", err, sizeof(err)), -ENOENT);
    ck_assert_ptr_nonnull(strstr(err, "/nonexistent/file"));
}
END_TEST

START_TEST(long_lines)
{
    char text[9000];
    int n = snprintf(text, sizeof(text), "[volume a]\npath = /%01000d\n", 0);

    ck_assert_int_eq(n, 1000 + 20);
    ck_assert_int_eq(load(text), 0);
    ck_assert_uint_eq(strlen(config.volumes[0].path), 1001);
    snprintf(text, sizeof(text), "[volume a]\npath = /%08500d\n", 0);
    expect_refused(text, 2, "too long");
}
END_TEST

START_TEST(the_command_line_wins)
{
    ck_assert_int_eq(set("threads", "7"), 0);
    ck_assert_int_eq(set("listen", "1.1.1.1"), 0);
    ck_assert_int_eq(config_add_volume(&config, "a=/command", err, sizeof(err)), 0);
    ck_assert_int_eq(load("[target]\nthreads = 2\nlisten = 2.2.2.2\ninline = 4K\n[volume a]\n"
                          "path = /file\nread-only = yes\n[volume b]\npath = /b\n"),
                     0);
    ck_assert_uint_eq(config.threads, 7);
    ck_assert_uint_eq(config.inline_size, 4096);
    ck_assert_uint_eq(config.listen_count, 1);
    ck_assert_str_eq(config.listen[0], "1.1.1.1");
    ck_assert_uint_eq(config.volume_count, 2);
    ck_assert_str_eq(config.volumes[0].path, "/command");
    ck_assert(!config.volumes[0].read_only);
}
END_TEST

START_TEST(volumes_of_the_command_line)
{
    const char *bad[] = {
        "",       "disk",
        "=x",     "a=",
        "-a=/x",  "a b=/x",
        "a/b=/x", "0123456789012345678901234567890123456789012345678901234567890123=/x"};

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        ck_assert_msg(config_add_volume(&config, bad[i], err, sizeof(err)) == -EINVAL, "%s",
                      bad[i]);
    ck_assert_int_eq(config_check(&config, err, sizeof(err)), -EINVAL);
    ck_assert_int_eq(config_add_volume(&config, "a=/x=y,ro", err, sizeof(err)), 0);
    ck_assert_str_eq(config.volumes[0].path, "/x=y");
    ck_assert(config.volumes[0].read_only);
    ck_assert_int_eq(config_add_volume(&config, "a=/z", err, sizeof(err)), -EINVAL);
    ck_assert_int_eq(config_add_volume(&config, "b=,ro", err, sizeof(err)), 0);
    ck_assert_str_eq(config.volumes[1].path, ",ro");
}
END_TEST

START_TEST(settings_have_to_fit)
{
    ck_assert_int_eq(config_add_volume(&config, "a=/x", err, sizeof(err)), 0);
    ck_assert_int_eq(set("nonsense", "1"), -ENOENT);
    ck_assert_int_eq(set("extent-size", "5000"), 0);
    ck_assert_int_eq(config_check(&config, err, sizeof(err)), -EINVAL);
    config.extent_size = 8192;
    ck_assert_int_eq(set("staging", "100000"), 0);
    ck_assert_int_eq(config_check(&config, err, sizeof(err)), -EINVAL);
    config.staging_size = 131072;
    ck_assert_int_eq(config_check(&config, err, sizeof(err)), 0);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("target_config");
    TCase *t = tcase_create("config");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, a_file_is_read);
    tcase_add_test(t, what_is_unknown_is_refused);
    tcase_add_test(t, bad_values_are_refused);
    tcase_add_test(t, long_lines);
    tcase_add_test(t, the_command_line_wins);
    tcase_add_test(t, volumes_of_the_command_line);
    tcase_add_test(t, settings_have_to_fit);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return suite_run(suite());
}
