/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_provider -- common/provider.c: what is chosen, and what running again leaves behind
 *
 * The program is its own subject: with --child it selects a provider and prints what came of it.
 * The library preloaded is the real one: $RBLK_SOFTRDMA_LIB, or that in the lib folder of this
 * build.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/provider.h"
#include "suite.h"

#define CHILD_SECONDS 30 /* a child that runs itself again for ever ends here */

static char library[PATH_MAX];
static char scratch[] = "/tmp/rblk-test-provider-XXXXXX";

/* -- the child ----------------------------------------------------------------------------- */

static const char *value_of(const char *name)
{
    const char *value = getenv(name);

    return value ? value : "unset";
}

/* --child PROVIDER ...: one line with everything that the tests look at. */
static int child(char **argv)
{
    const char *want = strcmp(argv[2], "none") == 0 ? NULL : argv[2];
    enum rblk_provider chosen = RBLK_PROVIDER_AUTO;
    char err[512] = "";
    int rc;

    alarm(CHILD_SECONDS); /* counts on when the process executes something else */
    rc = rblk_provider_select(&chosen, want, argv, err, sizeof err);
    printf("rc=%d chosen=%s loaded=%d preload=%s note=%s last=%s err=%s\n", rc,
           rblk_provider_name(chosen), rblk_provider_is_soft(), value_of("LD_PRELOAD"),
           value_of("RBLK_PROVIDER_NOTE"), argv[3], err);
    return 0;
}

/* -- helpers ------------------------------------------------------------------------------- */

/* Environment of the next child. */
static void in_child(const char *name, const char *value)
{
    if (value)
        ck_assert_int_eq(setenv(name, value, 1), 0);
    else
        ck_assert_int_eq(unsetenv(name), 0);
}

/* Runs a child with an argument that has blanks, and returns what it printed. */
static const char *run_child(const char *provider)
{
    static char output[4096];
    char *argv[] = {"test_provider", "--child", (char *)provider, "an argument", NULL};
    size_t len = 0;
    int pipe_fd[2], status;
    ssize_t rc;
    pid_t pid;

    ck_assert_int_eq(pipe(pipe_fd), 0);
    pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        dup2(pipe_fd[1], STDOUT_FILENO);
        close(pipe_fd[0]);
        close(pipe_fd[1]);
        execv("/proc/self/exe", argv);
        _exit(127);
    }
    close(pipe_fd[1]);
    while ((rc = read(pipe_fd[0], output + len, sizeof output - 1 - len)) > 0)
        len += (size_t)rc;
    output[len] = '\0';
    close(pipe_fd[0]);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "child: status %#x, output %s",
                  status, output);
    return output;
}

static void expect(const char *output, const char *part)
{
    ck_assert_msg(strstr(output, part) != NULL, "no \"%s\" in: %s", part, output);
}

/* A file in the scratch folder. */
static const char *make_file(const char *name, const char *text)
{
    static char path[PATH_MAX];
    FILE *file;

    snprintf(path, sizeof path, "%s/%s", scratch, name);
    file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
    return path;
}

static void find_library(void)
{
    const char *named = getenv("RBLK_SOFTRDMA_LIB");
    char path[PATH_MAX + 64];
    ssize_t len;

    if (!named) {
        len = readlink("/proc/self/exe", path, PATH_MAX);
        ck_assert_int_gt(len, 0);
        path[len] = '\0';
        strcpy(strrchr(path, '/'), "/../../lib/librblk-softrdma.so");
        named = path;
    }
    ck_assert_msg(realpath(named, library) != NULL,
                  "%s: %s; build it with scons, or set RBLK_SOFTRDMA_LIB", named, strerror(errno));
}

static void set_up(void)
{
    find_library();
    ck_assert_ptr_nonnull(mkdtemp(scratch));
    in_child("RBLK_SOFTRDMA_LIB", library);
    in_child("RBLK_PROVIDER", NULL);
    in_child("RBLK_PROVIDER_NOTE", NULL);
    in_child("LD_PRELOAD", NULL);
}

static void tear_down(void)
{
    char command[128];

    in_child("LD_PRELOAD", NULL); /* nor in the shell */
    snprintf(command, sizeof command, "rm -rf %s", scratch);
    ck_assert_int_eq(system(command), 0);
}

static bool has_devices(void)
{
    return access("/sys/class/infiniband", F_OK) == 0;
}

/* -- tests --------------------------------------------------------------------------------- */

START_TEST(names)
{
    static const enum rblk_provider all[] = {RBLK_PROVIDER_AUTO, RBLK_PROVIDER_VERBS,
                                             RBLK_PROVIDER_SOFT};
    enum rblk_provider p;

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        ck_assert_int_eq(rblk_provider_parse(&p, rblk_provider_name(all[i])), 0);
        ck_assert_int_eq(p, all[i]);
    }
    ck_assert_int_eq(rblk_provider_parse(&p, ""), -EINVAL);
    ck_assert_int_eq(rblk_provider_parse(&p, "Soft"), -EINVAL);
    ck_assert_int_eq(rblk_provider_parse(&p, "tcp"), -EINVAL);
    ck_assert_int_eq(p, RBLK_PROVIDER_SOFT);
}
END_TEST

START_TEST(soft_runs_the_program_again)
{
    const char *output = run_child("soft");

    expect(output, "rc=0 chosen=soft loaded=1 preload=unset note=unset last=an argument err=\n");
}
END_TEST

START_TEST(the_environment_chooses_when_the_option_does_not)
{
    in_child("RBLK_PROVIDER", "soft");
    expect(run_child("none"), "rc=0 chosen=soft loaded=1");
    in_child("RBLK_PROVIDER", "nonsense");
    expect(run_child("soft"), "rc=0 chosen=soft loaded=1");
    expect(run_child("none"), "\"nonsense\" (from RBLK_PROVIDER)");
    in_child("RBLK_PROVIDER", "");
    expect(run_child("none"), "rc=0");
}
END_TEST

START_TEST(auto_is_soft_without_a_device)
{
    if (has_devices())
        return; /* the answer is the machine's */
    expect(run_child("none"), "rc=0 chosen=soft loaded=1");
    expect(run_child("auto"), "rc=0 chosen=soft loaded=1");
}
END_TEST

START_TEST(verbs_needs_a_device)
{
    const char *output;
    char rc[32];

    if (has_devices())
        return;
    output = run_child("verbs");
    snprintf(rc, sizeof rc, "rc=%d ", -ENODEV);
    expect(output, rc);
    expect(output, "no RDMA device");
    expect(output, "--provider soft");
}
END_TEST

START_TEST(other_preloads_are_kept)
{
    in_child("LD_PRELOAD", "libm.so.6:libdl.so.2");
    expect(run_child("soft"), "loaded=1 preload=libm.so.6:libdl.so.2 note=unset");
    in_child("LD_PRELOAD", "libm.so.6 libdl.so.2");
    expect(run_child("soft"), "loaded=1 preload=libm.so.6 libdl.so.2 note=unset");
    in_child("LD_PRELOAD", "");
    expect(run_child("soft"), "loaded=1 preload=unset note=unset");
}
END_TEST

/* What the user preloaded is his own: it stays, for children too. */
START_TEST(preloaded_by_the_user)
{
    char preload[PATH_MAX + 64], rc[32];

    snprintf(preload, sizeof preload, "preload=%s note=unset", library);
    snprintf(rc, sizeof rc, "rc=%d ", -EBUSY);
    in_child("LD_PRELOAD", library);
    expect(run_child("none"), "rc=0 chosen=soft loaded=1");
    expect(run_child("soft"), preload);
    expect(run_child("verbs"), rc);
    expect(run_child("verbs"), "take librblk-softrdma.so out of LD_PRELOAD");
}
END_TEST

START_TEST(an_inherited_note_means_nothing)
{
    char note[PATH_MAX + 64];

    snprintf(note, sizeof note, "1 %s", library);
    in_child("RBLK_PROVIDER_NOTE", note);
    expect(run_child("soft"), "rc=0 chosen=soft loaded=1 preload=unset note=unset");
    in_child("RBLK_PROVIDER_NOTE", "nonsense");
    expect(run_child("soft"), "rc=0 chosen=soft loaded=1 preload=unset note=unset");
}
END_TEST

START_TEST(a_library_that_is_missing)
{
    char rc[32];

    snprintf(rc, sizeof rc, "rc=%d ", -ENOENT);
    in_child("RBLK_SOFTRDMA_LIB", "/nonexistent/lib.so");
    expect(run_child("soft"), rc);
    expect(run_child("soft"), "/nonexistent/lib.so: No such file or directory");
}
END_TEST

/* The dynamic linker says so on stderr and goes on without it: that must be noticed, and once. */
START_TEST(a_library_that_does_not_load)
{
    const char *path = make_file("not-a-library.so", "text");
    char rc[32];
    const char *output;
    int null = open("/dev/null", O_WRONLY);

    ck_assert_int_ge(dup2(null, STDERR_FILENO), 0); /* the linker's message */
    close(null);
    in_child("RBLK_SOFTRDMA_LIB", path);
    in_child("LD_PRELOAD", "libm.so.6");
    output = run_child("soft");
    snprintf(rc, sizeof rc, "rc=%d ", -ELIBACC);
    expect(output, rc);
    expect(output, "loaded=0 preload=libm.so.6 note=unset");
    expect(output, "was preloaded but is not in effect");
}
END_TEST

START_TEST(a_library_that_is_another_one)
{
    in_child("RBLK_SOFTRDMA_LIB", "/lib/x86_64-linux-gnu/libm.so.6");
    if (access(getenv("RBLK_SOFTRDMA_LIB"), R_OK) < 0)
        return; /* another architecture */
    expect(run_child("soft"), "was preloaded but is not in effect");
}
END_TEST

START_TEST(a_path_that_cannot_be_preloaded)
{
    char rc[32];

    snprintf(rc, sizeof rc, "rc=%d ", -EINVAL);
    in_child("RBLK_SOFTRDMA_LIB", make_file("a blank.so", ""));
    expect(run_child("soft"), rc);
    in_child("RBLK_SOFTRDMA_LIB", make_file("a:colon.so", ""));
    expect(run_child("soft"), "a blank or a colon");
}
END_TEST

START_TEST(an_unknown_provider)
{
    char rc[32];

    snprintf(rc, sizeof rc, "rc=%d ", -EINVAL);
    expect(run_child("tcp"), rc);
    expect(run_child("tcp"), "\"tcp\" (from --provider); use auto, verbs or soft");
}
END_TEST

static Suite *provider_suite(void)
{
    Suite *suite = suite_create("provider");
    TCase *tcase = tcase_create("provider");

    tcase_set_timeout(tcase, 2 * CHILD_SECONDS);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, names);
    tcase_add_test(tcase, soft_runs_the_program_again);
    tcase_add_test(tcase, the_environment_chooses_when_the_option_does_not);
    tcase_add_test(tcase, auto_is_soft_without_a_device);
    tcase_add_test(tcase, verbs_needs_a_device);
    tcase_add_test(tcase, other_preloads_are_kept);
    tcase_add_test(tcase, preloaded_by_the_user);
    tcase_add_test(tcase, an_inherited_note_means_nothing);
    tcase_add_test(tcase, a_library_that_is_missing);
    tcase_add_test(tcase, a_library_that_does_not_load);
    tcase_add_test(tcase, a_library_that_is_another_one);
    tcase_add_test(tcase, a_path_that_cannot_be_preloaded);
    tcase_add_test(tcase, an_unknown_provider);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    if (argc > 3 && strcmp(argv[1], "--child") == 0)
        return child(argv);
    return suite_run(provider_suite());
}
