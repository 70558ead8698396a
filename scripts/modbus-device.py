#!/usr/bin/env python3
"""A Modbus TCP device of pymodbus, for the tests and the example of the gear `modbus`: usage: modbus-device.py [PORT]

Says `ready PORT`, then each request: its function, address and count, and what it writes. Unit 1 answers.
"""
import asyncio
import signal
import sys

from pymodbus.server import ModbusTcpServer
from pymodbus.simulator import DataType, SimData, SimDevice

BITS = [number % 3 == 0 for number in range(32)]
COILS = [SimData(0, values=BITS, datatype=DataType.BITS)]
DISCRETE = [SimData(0, values=[not bit for bit in BITS], datatype=DataType.BITS)]
HOLDING = [
    SimData(0, values=65535, datatype=DataType.UINT16),
    SimData(1, values=-2, datatype=DataType.INT16),
    SimData(2, values=4_000_000_000, datatype=DataType.UINT32),
    SimData(4, values=-2_000_000_000, datatype=DataType.INT32),
    SimData(6, values=21.5, datatype=DataType.FLOAT32),
    SimData(8, values=2**63 + 1, datatype=DataType.UINT64),
    SimData(12, values=-(2**62), datatype=DataType.INT64),
    SimData(16, values=-0.25, datatype=DataType.FLOAT64),
    # 1.5, the low word first, and what is no number.
    SimData(20, values=[0x0000, 0x3FC0, 0x7FC0, 0x0000], datatype=DataType.REGISTERS),
    SimData(100, values=list(range(200)), datatype=DataType.REGISTERS),
]
INPUT = [SimData(0, values=[215, 7], datatype=DataType.REGISTERS)]


async def tell(function, _start, address, count, _registers, written):
    print(function, address, count, "" if written is None else [int(value) for value in written], flush=True)


async def main():
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    device = SimDevice(1, simdata=(COILS, DISCRETE, HOLDING, INPUT), action=tell)
    server = ModbusTcpServer(device, address=("127.0.0.1", port))
    await server.serve_forever(background=True)
    print("ready", server.transport.sockets[0].getsockname()[1], flush=True)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()


asyncio.run(main())
