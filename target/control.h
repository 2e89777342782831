/* SPDX-License-Identifier: BSD-2-Clause */
/* control -- what the messages of a control connection do. Control thread only. */
#ifndef RBLK_TARGET_CONTROL_H
#define RBLK_TARGET_CONTROL_H

#include <stddef.h>
#include <stdint.h>

#include "connection.h"

/* Handles one message; validates it completely first. */
void control_message(struct connection *c, const uint8_t *message, size_t len);
/* Tries an ATTACH that had to wait again. */
void control_attach_again(struct connection *c);
/* Answers an ATTACH that has waited too long. */
void control_attach_expired(struct connection *c);
/* Answers DETACH. */
void control_detached(struct connection *c);
/* Sends GOODBYE, if the client has room for an event. */
void control_goodbye(struct connection *c);

#endif
