"""What crosses a doorway? Messages, their bytes, and the inputs and effects of machines."""

from braid.protocol.batch import PublicationBatch, decode_record, encode_record
from braid.protocol.channel import Channel, ChannelSettings
from braid.protocol.codec import Frame, FrameDecoder, encode_frames
from braid.protocol.limits import FRAME_BYTES_MAX
from braid.protocol.machine import Machine

__all__ = [
    "FRAME_BYTES_MAX",
    "Channel",
    "ChannelSettings",
    "Frame",
    "FrameDecoder",
    "Machine",
    "PublicationBatch",
    "decode_record",
    "encode_frames",
    "encode_record",
]
