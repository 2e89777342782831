#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""capture.py -- checks what tshark made of captured iWARP connections.

Usage: capture.py PDML PORT:CRC:OPCODES:SEGMENTED ...

For each PORT on which a server listened: CRC is 0 or 1; OPCODES are the RDMAP opcodes (0 Write, 1 Read
Request, 2 Read Response, 3 Send, 7 Terminate) that must occur, as digits; those among SEGMENTED must
occur as messages of several FPDUs. Prints one line for each port, or says what is wrong and fails.
"""

import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter, defaultdict

HEADER = {0: 14, 1: 46, 2: 14, 3: 18, 4: 18, 5: 18, 6: 18, 7: 18}
QUEUE = {1: 1, 3: 0, 4: 0, 5: 0, 6: 0, 7: 2}
EXPERT_WARNING = 0x600000


class Bad(Exception):
    """What is wrong with the capture."""


def check(condition, what):
    if not condition:
        raise Bad(what)


def field(node, name):
    """The first field of this name, or None."""
    return next((f for f in node.iter('field') if f.get('name') == name), None)


def value(node, name):
    found = field(node, name)
    check(found is not None, f'no field {name}')
    return int(found.get('value'), 16)


class Stream:
    """One direction of a connection."""

    def __init__(self):
        self.bytes = 0        # decoded
        self.next_sequence = 1
        self.begun = False
        self.ended = False    # a Terminate was sent
        self.message = Counter()
        self.tagged = None    # (opcode, stag, next offset) of an unfinished tagged message
        self.untagged = {}    # queue -> bytes of the unfinished message
        self.reads = []       # reads asked for: (sink stag, sink offset, size)
        self.read_bytes = 0


class Port:
    """All connections of one server."""

    def __init__(self, text):
        port, crc, opcodes, segmented = text.split(':')
        self.port = int(port)
        self.crc = crc == '1'
        self.opcodes = set(map(int, opcodes))
        self.segmented = set(map(int, segmented))
        self.streams = defaultdict(Stream)
        self.messages = Counter()
        self.fpdus = Counter()
        self.several = Counter()
        self.terminates = Counter()

    def stream(self, number, to_server):
        return self.streams[number, to_server]

    def handshake(self, stream, node, to_server):
        request = field(node, 'iwarp_mpa.req') is not None
        check(request == to_server, 'an MPA request from the server or a reply from the client')
        check(not stream.begun, 'a second MPA frame')
        check(value(node, 'iwarp_mpa.crc_flag') == self.crc, 'the CRC flag is not what was asked for')
        check(value(node, 'iwarp_mpa.marker_flag') == 0, 'markers')
        check(value(node, 'iwarp_mpa.rej_flag') == 0, 'a rejection')
        stream.begun = True
        stream.bytes += 20 + value(node, 'iwarp_mpa.pdlength')

    def fpdu(self, number, to_server, mpa, rdmap):
        stream = self.stream(number, to_server)
        check(stream.begun, 'an FPDU before the MPA frame')
        check(not stream.ended, 'an FPDU after a Terminate')
        length = value(mpa, 'iwarp_mpa.ulpdulength')
        stream.bytes += (2 + length + 3) // 4 * 4 + 4
        if self.crc:
            text = field(mpa, 'iwarp_mpa.crc_check')
            check(text is not None and 'Good CRC32' in text.get('showname'), 'a bad CRC')
        else:
            check(value(mpa, 'iwarp_mpa.crc') == 0, 'a CRC though none was agreed')
        opcode = value(rdmap, 'iwarp_rdma.opcode')
        last = value(rdmap, 'iwarp_ddp.last_flag') == 1
        tagged = value(rdmap, 'iwarp_ddp.tagged_flag') == 1
        check(opcode in HEADER, f'opcode {opcode}')
        check(tagged == (opcode in (0, 2)), f'opcode {opcode}: wrong buffer model')
        check(value(rdmap, 'iwarp_ddp.dv') == 1, 'DDP version')
        check(value(rdmap, 'iwarp_rdma.version') == 1, 'RDMAP version')
        payload = length - HEADER[opcode]
        check(payload >= 0, f'opcode {opcode}: shorter than its header')
        self.fpdus[opcode] += 1
        stream.message[opcode] += 1
        if tagged:
            self.tagged(number, to_server, stream, rdmap, opcode, payload, last)
        else:
            self.untagged(stream, rdmap, opcode, payload, last)
        if last:
            self.messages[opcode] += 1
            if stream.message[opcode] > 1:
                self.several[opcode] += 1
            stream.message[opcode] = 0

    def tagged(self, number, to_server, stream, rdmap, opcode, payload, last):
        stag = value(rdmap, 'iwarp_ddp.stag')
        offset = value(rdmap, 'iwarp_ddp.tagged_offset')
        if stream.tagged is not None:
            check(stream.tagged == (opcode, stag, offset), f'opcode {opcode}: not where the last one ended')
        if opcode == 2:
            reads = self.stream(number, not to_server).reads
            check(reads, 'a Read Response to no Read Request')
            sink, begin, size = reads[0]
            check((stag, offset) == (sink, begin + stream.read_bytes), 'a Read Response to another place')
            stream.read_bytes += payload
            check(last == (stream.read_bytes == size), 'a Read Response of another size than asked for')
            if last:
                reads.pop(0)
                stream.read_bytes = 0
        stream.tagged = None if last else (opcode, stag, offset + payload)

    def untagged(self, stream, rdmap, opcode, payload, last):
        queue = value(rdmap, 'iwarp_ddp.qn')
        check(queue == QUEUE[opcode], f'opcode {opcode} on queue {queue}')
        stream.untagged.setdefault(queue, [1, 0])
        message, done = stream.untagged[queue]
        check(value(rdmap, 'iwarp_ddp.msn') == message, f'opcode {opcode}: message sequence number')
        check(value(rdmap, 'iwarp_ddp.mo') == done, f'opcode {opcode}: message offset')
        stream.untagged[queue] = [message + 1, 0] if last else [message, done + payload]
        if opcode == 1:
            stream.reads.append((value(rdmap, 'iwarp_rdma.sinkstag'), value(rdmap, 'iwarp_rdma.sinkto'),
                                 value(rdmap, 'iwarp_rdma.rdmardsz')))
        if opcode == 7:
            stream.ended = True
            kinds = ('iwarp_rdma.term_etype_rdma', 'iwarp_rdma.term_etype_ddp', 'iwarp_rdma.term_etype_llp')
            codes = ('iwarp_rdma.term_errcode_rdma', 'iwarp_rdma.term_errcode_ddp_untagged',
                     'iwarp_rdma.term_errcode_ddp_tagged', 'iwarp_rdma.term_errcode_llp',
                     'iwarp_rdma.term_errcode')
            kind = next((f for f in (field(rdmap, k) for k in kinds) if f is not None), None)
            code = next((f for f in (field(rdmap, c) for c in codes) if f is not None), None)
            check(kind is not None and code is not None, 'a Terminate without a reason')
            self.terminates[value(rdmap, 'iwarp_rdma.term_layer'), int(kind.get('value'), 16),
                            int(code.get('value'), 16)] += 1

    def finish(self):
        check(self.streams, 'no connection')
        for (number, _), stream in self.streams.items():
            check(stream.begun, f'stream {number}: no MPA frame')
            check(stream.bytes == stream.next_sequence - 1,
                  f'stream {number}: {stream.next_sequence - 1} bytes, of which {stream.bytes} were decoded')
        missing = self.opcodes - set(self.messages)
        check(not missing, f'no message of opcode {sorted(missing)}; seen: {dict(self.messages)}')
        missing = self.segmented - set(self.several)
        check(not missing, f'no message of several FPDUs of opcode {sorted(missing)}')
        print(f'port {self.port}: {len(self.streams) // 2} connections;',
              ', '.join(f'opcode {o}: {self.messages[o]} messages in {self.fpdus[o]} FPDUs'
                        for o in sorted(self.messages)),
              ''.join(f'; Terminate {k[0]}/{k[1]}/{k[2]}' for k in sorted(self.terminates)))


def packet(node, ports):
    protocols = node.findall('proto')
    tcp = next((p for p in protocols if p.get('name') == 'tcp'), None)
    check(all(p.get('name') != '_ws.malformed' for p in protocols), 'malformed')
    check(tcp is not None, 'not TCP')
    source, destination = value(tcp, 'tcp.srcport'), value(tcp, 'tcp.dstport')
    port = ports.get(destination) or ports.get(source)
    check(port is not None, f'ports {source} and {destination}')
    to_server = port.port == destination
    number = int(field(tcp, 'tcp.stream').get('show'))
    stream = port.stream(number, to_server)
    fin = value(tcp, 'tcp.flags.fin')
    sequence = int(field(tcp, 'tcp.nxtseq').get('show')) if field(tcp, 'tcp.nxtseq') is not None else 1
    if int(field(tcp, 'tcp.len').get('show')) > 0:
        stream.next_sequence = max(stream.next_sequence, sequence - fin)
    previous = None
    for protocol in protocols:
        if not protocol.get('name').startswith('iwarp'):
            continue
        severity = [int(f.get('show')) for f in protocol.iter('field') if f.get('name') == '_ws.expert.severity']
        check(all(s < EXPERT_WARNING for s in severity), 'the dissector warns: ' + '; '.join(
            f.get('show') for f in protocol.iter('field') if f.get('name') == '_ws.expert.message'))
        if protocol.get('name') == 'iwarp_ddp_rdmap':
            check(previous is not None, 'RDMAP outside an FPDU')
            port.fpdu(number, to_server, previous, protocol)
            previous = None
        elif field(protocol, 'iwarp_mpa.fpdu') is not None:
            check(previous is None, 'an FPDU of which only MPA was understood')
            previous = protocol
        else:
            port.handshake(stream, protocol, to_server)
    check(previous is None, 'an FPDU of which only MPA was understood')


def main():
    ports = {port.port: port for port in map(Port, sys.argv[2:])}
    frames = 0
    try:
        for _, node in ElementTree.iterparse(sys.argv[1]):
            if node.tag == 'packet':
                frames += 1
                packet(node, ports)
                node.clear()
        frames = 'end'
        for port in ports.values():
            port.finish()
    except Bad as error:
        sys.exit(f'capture, frame {frames}: {error}')


main()
