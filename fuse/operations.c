/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * operations -- the FUSE requests of the one file (and perhaps its folder) that a mount shows
 *
 * Not in the table, and what the kernel makes of the ENOSYS that libfuse answers: flush (close is
 * no promise of durability: not asked again), lseek (the whole file is data), fallocate
 * (EOPNOTSUPP), access (default_permissions is always set, the kernel checks), xattr (EOPNOTSUPP),
 * copy_file_range (the kernel copies by reading and writing).
 */

#define FUSE_USE_VERSION 312

#include "operations.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>

#include "frontend.h"
#include "worker.h"

#define FOLDER_INODE FUSE_ROOT_ID
#define DISK_INODE_IN_FOLDER (FUSE_ROOT_ID + 1)

/* Seconds for which the kernel may keep names and attributes. Only a change through this mount
 * changes them. */
#define ATTRIBUTE_SECONDS 60.0

/* What st_blksize advises, bytes. */
#define PREFERRED_BLOCK 4096

/* The first kernel interface (Linux 6.2) that knows FOPEN_PARALLEL_DIRECT_WRITES; older ones ignore
 * the bit. */
#define PARALLEL_WRITES_MINOR 38

static struct frontend *frontend_of(fuse_req_t req)
{
    return fuse_req_userdata(req);
}

static fuse_ino_t disk_inode(const struct frontend *f)
{
    return f->on_file ? FUSE_ROOT_ID : DISK_INODE_IN_FOLDER;
}

static struct timespec timespec_of(int64_t ns)
{
    struct timespec ts = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};

    return ts;
}

static int64_t wall_clock_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_REALTIME, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static void disk_stat(struct frontend *f, struct stat *st)
{
    memset(st, 0, sizeof(*st));
    st->st_ino = disk_inode(f);
    st->st_mode = S_IFREG | atomic_load_explicit(&f->mode, memory_order_relaxed);
    st->st_nlink = 1;
    st->st_uid = atomic_load_explicit(&f->uid, memory_order_relaxed);
    st->st_gid = atomic_load_explicit(&f->gid, memory_order_relaxed);
    st->st_size = (off_t)f->info.size;
    st->st_blocks = (blkcnt_t)(f->info.size / 512 + (f->info.size % 512 != 0));
    st->st_blksize = PREFERRED_BLOCK;
    st->st_mtim = timespec_of(atomic_load_explicit(&f->mtime_ns, memory_order_relaxed));
    st->st_ctim = st->st_mtim;
    st->st_atim = st->st_mtim;
}

static void folder_stat(struct frontend *f, struct stat *st)
{
    memset(st, 0, sizeof(*st));
    st->st_ino = FOLDER_INODE;
    st->st_mode = S_IFDIR | (f->options->allow_other ? 0555 : 0500);
    st->st_nlink = 2;
    st->st_uid = atomic_load_explicit(&f->uid, memory_order_relaxed);
    st->st_gid = atomic_load_explicit(&f->gid, memory_order_relaxed);
    st->st_blksize = PREFERRED_BLOCK;
    st->st_mtim = timespec_of(atomic_load_explicit(&f->mtime_ns, memory_order_relaxed));
    st->st_ctim = st->st_mtim;
    st->st_atim = st->st_mtim;
}

static void op_init(void *userdata, struct fuse_conn_info *conn)
{
    struct frontend *f = userdata;

    conn->max_write = FRONTEND_MAX_IO;
    conn->max_read = FRONTEND_MAX_IO; /* must equal the mount option of that name */
    conn->max_readahead = FRONTEND_MAX_IO;
    conn->max_background = FRONTEND_MAX_BACKGROUND;
    conn->congestion_threshold = FRONTEND_CONGESTION;
    /*
     * Without ATOMIC_O_TRUNC the kernel truncates by a SETATTR of its own, which is answered with
     * the true size. With it, the kernel would take the size to be 0 after an open with O_TRUNC.
     */
    conn->want &=
        ~(unsigned int)(FUSE_CAP_ATOMIC_O_TRUNC | FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE |
                        FUSE_CAP_SPLICE_MOVE | FUSE_CAP_IOCTL_DIR);
    f->kernel_minor = conn->proto_minor;
    f->parallel_writes = conn->proto_minor >= PARALLEL_WRITES_MINOR;
    f->initialised = true;
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct frontend *f = frontend_of(req);
    struct fuse_entry_param entry = {.attr_timeout = ATTRIBUTE_SECONDS,
                                     .entry_timeout = ATTRIBUTE_SECONDS};

    if (f->on_file || parent != FOLDER_INODE || strcmp(name, f->info.volume) != 0) {
        fuse_reply_err(req, ENOENT);
        return;
    }
    entry.ino = DISK_INODE_IN_FOLDER;
    disk_stat(f, &entry.attr);
    fuse_reply_entry(req, &entry);
}

static void reply_attributes(fuse_req_t req, struct frontend *f, fuse_ino_t ino)
{
    struct stat st;

    if (ino == disk_inode(f))
        disk_stat(f, &st);
    else if (ino == FOLDER_INODE)
        folder_stat(f, &st);
    else {
        fuse_reply_err(req, ENOENT);
        return;
    }
    fuse_reply_attr(req, &st, ATTRIBUTE_SECONDS);
}

static void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    (void)fi;
    reply_attributes(req, frontend_of(req), ino);
}

/*
 * The size of a disk is fixed. Truncating to its own size is fine; so is truncating to 0 without an
 * open file, because that is how an open with O_TRUNC arrives, which on a disk has no effect (as on
 * a block device). Every other size is refused with what truncate(2) says for that.
 */
static bool size_is_acceptable(const struct frontend *f, const struct stat *attr,
                               const struct fuse_file_info *fi)
{
    if (attr->st_size >= 0 && (uint64_t)attr->st_size == f->info.size)
        return true;
    return attr->st_size == 0 && !fi;
}

static void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
                       struct fuse_file_info *fi)
{
    struct frontend *f = frontend_of(req);

    if (ino != disk_inode(f)) {
        fuse_reply_err(req, EPERM);
        return;
    }
    if ((to_set & FUSE_SET_ATTR_SIZE) && !size_is_acceptable(f, attr, fi)) {
        fuse_reply_err(req, EPERM);
        return;
    }
    /* The rest lives as long as the mount. The kernel has checked who may (default_permissions). */
    if (to_set & FUSE_SET_ATTR_MODE)
        atomic_store_explicit(&f->mode, attr->st_mode & 0777, memory_order_relaxed);
    if (to_set & FUSE_SET_ATTR_UID)
        atomic_store_explicit(&f->uid, attr->st_uid, memory_order_relaxed);
    if (to_set & FUSE_SET_ATTR_GID)
        atomic_store_explicit(&f->gid, attr->st_gid, memory_order_relaxed);
    if (to_set & FUSE_SET_ATTR_MTIME_NOW)
        atomic_store_explicit(&f->mtime_ns, wall_clock_ns(), memory_order_relaxed);
    else if (to_set & FUSE_SET_ATTR_MTIME)
        atomic_store_explicit(&f->mtime_ns,
                              (int64_t)attr->st_mtim.tv_sec * 1000000000 + attr->st_mtim.tv_nsec,
                              memory_order_relaxed);
    reply_attributes(req, f, ino);
}

static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct frontend *f = frontend_of(req);
    /* Built by hand: libfuse has a name for parallel direct writes only since 3.15. */
    struct fuse_open_out out = {.fh = 0};

    if (ino != disk_inode(f)) {
        fuse_reply_err(req, ino == FOLDER_INODE ? EISDIR : ENOENT);
        return;
    }
    if (f->read_only && (fi->flags & O_ACCMODE) != O_RDONLY) {
        fuse_reply_err(req, EROFS);
        return;
    }
    if (f->options->cache)
        out.open_flags = FOPEN_KEEP_CACHE;
    else
        out.open_flags = FOPEN_DIRECT_IO | (f->parallel_writes ? FOPEN_PARALLEL_DIRECT_WRITES : 0);
    fuse_reply_buf(req, (const char *)&out, sizeof(out));
}

static void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    (void)ino;
    (void)fi;
    fuse_reply_err(req, 0);
}

static void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
                    struct fuse_file_info *fi)
{
    struct frontend *f = frontend_of(req);
    uint64_t left;

    (void)ino;
    (void)fi;
    if (offset < 0) {
        fuse_reply_err(req, EINVAL);
        return;
    }
    left = (uint64_t)offset < f->info.size ? f->info.size - (uint64_t)offset : 0;
    if (size > left)
        size = left;
    if (size == 0)
        fuse_reply_buf(req, NULL, 0);
    else
        worker_read(req, size, (uint64_t)offset);
}

static void op_write(fuse_req_t req, fuse_ino_t ino, const char *data, size_t size, off_t offset,
                     struct fuse_file_info *fi)
{
    struct frontend *f = frontend_of(req);
    uint64_t left;

    (void)ino;
    if (f->read_only) {
        fuse_reply_err(req, EROFS);
        return;
    }
    if (offset < 0) {
        fuse_reply_err(req, EINVAL);
        return;
    }
    if (size == 0) {
        fuse_reply_write(req, 0);
        return;
    }
    /* As a block device: nothing fits beyond the end; what crosses it is cut short. */
    left = (uint64_t)offset < f->info.size ? f->info.size - (uint64_t)offset : 0;
    if (left == 0) {
        fuse_reply_err(req, ENOSPC);
        return;
    }
    if (size > left)
        size = left;
    /* The kernel sends no FSYNC after a direct write with O_DSYNC, O_SYNC (which includes it) or
     * RWF_DSYNC. */
    worker_write(req, data, size, (uint64_t)offset, (fi->flags & O_DSYNC) != 0);
}

static void op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
    struct frontend *f = frontend_of(req);

    (void)ino;
    (void)datasync; /* the disk has no metadata */
    (void)fi;
    if (f->read_only)
        fuse_reply_err(req, 0);
    else
        worker_flush(req);
}

static void op_statfs(fuse_req_t req, fuse_ino_t ino)
{
    struct frontend *f = frontend_of(req);
    struct statvfs st = {
        .f_bsize = PREFERRED_BLOCK,
        .f_frsize = PREFERRED_BLOCK,
        .f_blocks = f->info.size / PREFERRED_BLOCK + (f->info.size % PREFERRED_BLOCK != 0),
        .f_files = 1,
        .f_namemax = sizeof(f->info.volume) - 1,
    };

    (void)ino;
    fuse_reply_statfs(req, &st);
}

static void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    if (ino != FOLDER_INODE || frontend_of(req)->on_file)
        fuse_reply_err(req, ENOTDIR);
    else
        fuse_reply_open(req, fi);
}

static void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
                       struct fuse_file_info *fi)
{
    struct frontend *f = frontend_of(req);
    const char *const names[] = {".", "..", f->info.volume};
    char buf[512];
    size_t used = 0;

    (void)ino;
    (void)fi;
    if (size > sizeof(buf))
        size = sizeof(buf);
    for (off_t i = offset; i >= 0 && i < 3; i++) {
        struct stat st;
        size_t need;

        if (i < 2)
            folder_stat(f, &st);
        else
            disk_stat(f, &st);
        need = fuse_add_direntry(req, buf + used, size - used, names[i], &st, i + 1);
        if (need > size - used)
            break;
        used += need;
    }
    fuse_reply_buf(req, buf, used);
}

const struct fuse_lowlevel_ops frontend_operations = {
    .init = op_init,
    .lookup = op_lookup,
    .getattr = op_getattr,
    .setattr = op_setattr,
    .open = op_open,
    .release = op_release,
    .read = op_read,
    .write = op_write,
    .fsync = op_fsync,
    .statfs = op_statfs,
    .opendir = op_opendir,
    .readdir = op_readdir,
    .releasedir = op_release,
};
