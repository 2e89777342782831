/* SPDX-License-Identifier: BSD-2-Clause */
/* test_uri -- common/uri.c: URIs and listen addresses, good and bad */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "common/uri.h"
#include "suite.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define NAME63 "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz01234567890"
#define LABEL50 "aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeee"
#define HOST250 LABEL50 LABEL50 LABEL50 LABEL50 LABEL50

static const struct {
    const char *text;
    const char *host;
    uint16_t port;
    const char *volume;
    const char *again; /* how it is written back; NULL: as text */
} good[] = {
    {"rblk://10.0.0.1/disk", "10.0.0.1", 7470, "disk", NULL},
    {"rblk://10.0.0.1:7470/disk", "10.0.0.1", 7470, "disk", "rblk://10.0.0.1/disk"},
    {"rblk://store-1.example.org:1/a.b_c-d", "store-1.example.org", 1, "a.b_c-d", NULL},
    {"rblk://h:65535/disk", "h", 65535, "disk", NULL},
    {"rblk://h:07470/disk", "h", 7470, "disk", "rblk://h/disk"},
    {"rblk://[::1]/disk", "::1", 7470, "disk", NULL},
    {"rblk://[::1]:80/disk", "::1", 80, "disk", NULL},
    {"rblk://[fe80::1%eth0]:80/disk", "fe80::1%eth0", 80, "disk", NULL},
    {"rblk://[::ffff:10.0.0.1]/disk", "::ffff:10.0.0.1", 7470, "disk", NULL},
    {"RBLK://h/disk", "h", 7470, "disk", "rblk://h/disk"},
    {"rblk://h", "h", 7470, "", NULL},
    {"rblk://h/", "h", 7470, "", "rblk://h"},
    {"rblk://h:80", "h", 80, "", NULL},
    {"h", "h", 7470, "", "rblk://h"},
    {"h:80", "h", 80, "", "rblk://h:80"},
    {"[::1]:80", "::1", 80, "", "rblk://[::1]:80"},
    {"rblk://h/" NAME63, "h", 7470, NAME63, NULL},
    {"rblk://" HOST250 "/d", HOST250, 7470, "d", NULL},
};

START_TEST(takes_good_ones)
{
    struct rblk_uri uri;
    char err[256] = "untouched";
    char buf[512];
    int rc = rblk_uri_parse(&uri, good[_i].text, err, sizeof err);
    const char *again = good[_i].again ? good[_i].again : good[_i].text;

    ck_assert_msg(rc == 0, "%s", err);
    ck_assert_str_eq(err, "untouched");
    ck_assert_str_eq(uri.host, good[_i].host);
    ck_assert_uint_eq(uri.port, good[_i].port);
    ck_assert_str_eq(uri.volume, good[_i].volume);
    ck_assert_int_eq(rblk_uri_format(buf, sizeof buf, &uri), (int)strlen(again));
    ck_assert_str_eq(buf, again);
}
END_TEST

static const struct {
    const char *text;
    const char *cause; /* part of the message */
} bad[] = {
    {"", "host is missing"},
    {"rblk://", "host is missing"},
    {"rblk:///disk", "host is missing"},
    {"rblk://:80/disk", "host is missing"},
    {"rblk:/h/disk", "scheme is missing"},
    {"h/disk", "scheme is missing"},
    {"/srv/disk.img", "scheme is missing"},
    {"nbd://h/disk", "scheme is not rblk"},
    {"rblk://h:/disk", "port"},
    {"rblk://h:0/disk", "port"},
    {"rblk://h:65536/disk", "port"},
    {"rblk://h:99999999999999999999/disk", "port"},
    {"rblk://h:-1/disk", "port"},
    {"rblk://h: 80/disk", "port"},
    {"rblk://h:80x/disk", "port"},
    {"rblk://::1/disk", "brackets"},
    {"rblk://fe80::1/disk", "brackets"},
    {"rblk://[::1/disk", "closing bracket"},
    {"rblk://[::1]x/disk", "closing bracket"},
    {"rblk://[]/disk", "no IPv6 address"},
    {"rblk://[h]/disk", "no IPv6 address"},
    {"rblk://[10.0.0.1]/disk", "no IPv6 address"},
    {"rblk://[fe80::1%]/disk", "no IPv6 address"},
    {"rblk://[fe80::1%averyveryverylongname]/disk", "no IPv6 address"},
    {"rblk://[::1]:0/disk", "port"},
    {"rblk://us er@h/disk", "no host name has"},
    {"rblk://user@h/disk", "no host name has"},
    {"rblk://-h/disk", "no host name has"},
    {"rblk://h\n/disk", "no host name has"},
    {"rblk://h//disk", "volume"},
    {"rblk://h/disk/", "volume"},
    {"rblk://h/a/b", "volume"},
    {"rblk://h/.disk", "volume"},
    {"rblk://h/-disk", "volume"},
    {"rblk://h/di sk", "volume"},
    {"rblk://h/disk?x", "volume"},
    {"rblk://h/" NAME63 "1", "volume"},
    {"rblk://" HOST250 "123456/d", "too long"},
    {"rblk://" HOST250 HOST250 "/d", "too long"},
};

START_TEST(explains_bad_ones)
{
    struct rblk_uri uri, before;
    char err[256] = "";

    memset(&uri, 0x5a, sizeof uri);
    before = uri;
    ck_assert_int_lt(rblk_uri_parse(&uri, bad[_i].text, err, sizeof err), 0);
    ck_assert_mem_eq(&uri, &before, sizeof uri);
    ck_assert_msg(strstr(err, bad[_i].cause) != NULL, "\"%s\" gave: %s", bad[_i].text, err);
    ck_assert_msg(strstr(err, "rblk://HOST[:PORT]/VOLUME") != NULL, "no remedy: %s", err);
}
END_TEST

START_TEST(errors_fit_the_buffer)
{
    struct rblk_uri uri;
    char err[] = "xxxxxxxxxxxx";

    ck_assert_int_lt(rblk_uri_parse(&uri, "h/disk", err, 5), 0);
    ck_assert_str_eq(err, "URI ");
    ck_assert_mem_eq(err + 5, "xxxxxxx", 8);
    ck_assert_int_lt(rblk_uri_parse(&uri, "h/disk", NULL, 0), 0);
}
END_TEST

static const struct {
    const char *text;
    int rc;
    const char *host;
    uint16_t port;
} addresses[] = {
    {"10.0.0.1", 0, "10.0.0.1", 7470},
    {"10.0.0.1:80", 0, "10.0.0.1", 80},
    {"store:0", 0, "store", 0}, /* any free port */
    {":80", 0, "", 80},
    {"[::]", 0, "::", 7470},
    {"[::]:80", 0, "::", 80},
    {"[fe80::1%eth0]:80", 0, "fe80::1%eth0", 80},
    {"", -1, NULL, 0},
    {":", -1, NULL, 0},
    {"::", -1, NULL, 0},
    {"h:65536", -1, NULL, 0},
    {"[::1", -1, NULL, 0},
    {"h/disk", -1, NULL, 0},
    {"rblk://h", -1, NULL, 0},
};

START_TEST(addresses_to_listen_on)
{
    char host[256] = "before";
    uint16_t port = 4711;
    char err[256] = "";
    int rc = rblk_address_parse(host, sizeof host, &port, addresses[_i].text, err, sizeof err);

    ck_assert_msg((rc < 0) == (addresses[_i].rc < 0), "\"%s\": %s", addresses[_i].text, err);
    ck_assert_str_eq(host, rc == 0 ? addresses[_i].host : "before");
    ck_assert_uint_eq(port, rc == 0 ? addresses[_i].port : 4711);
    ck_assert((rc < 0) == (strstr(err, "HOST[:PORT]") != NULL));
}
END_TEST

START_TEST(address_respects_the_buffer)
{
    char host[4] = "abc";
    uint16_t port = 1;
    char err[256];

    ck_assert_int_lt(rblk_address_parse(host, sizeof host, &port, "host", err, sizeof err), 0);
    ck_assert_str_eq(host, "abc");
    ck_assert_int_eq(rblk_address_parse(host, sizeof host, &port, "hst", err, sizeof err), 0);
    ck_assert_str_eq(host, "hst");
}
END_TEST

static Suite *uri_suite(void)
{
    Suite *suite = suite_create("uri");
    TCase *tcase = tcase_create("uri");

    tcase_add_loop_test(tcase, takes_good_ones, 0, COUNT(good));
    tcase_add_loop_test(tcase, explains_bad_ones, 0, COUNT(bad));
    tcase_add_test(tcase, errors_fit_the_buffer);
    tcase_add_loop_test(tcase, addresses_to_listen_on, 0, COUNT(addresses));
    tcase_add_test(tcase, address_respects_the_buffer);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return suite_run(uri_suite());
}
