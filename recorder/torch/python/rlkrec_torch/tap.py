"""The tap (recorder/rlk_tap.h) through ctypes: for a Python without a compiler at hand."""
import ctypes
import os
from ctypes import POINTER, Structure, c_bool, c_char_p, c_double, c_int, c_int32, c_int64, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p

ABI = 4
OWN_RANK = 0xFFFFFFFF
DIGESTED, UNDEFINED, NOT_DIGESTED = 0, 2, 3  # enum rlk_tensor_state
RNG = 5  # enum rlk_event_kind
INT, DOUBLE, STRING = 1, 2, 3  # enum rlk_attr_type


class View(Structure):
    _fields_ = [("dtype", c_int), ("ndim", c_uint32), ("shape", POINTER(c_uint64)), ("strides", POINTER(c_int64)), ("storage", c_void_p),
                ("storage_bytes", c_uint64), ("offset", c_uint64), ("conj", c_bool), ("neg", c_bool)]


class Tensor(Structure):
    _fields_ = [("name", c_char_p), ("view", View), ("place", c_void_p), ("generation", c_uint64), ("version", c_uint64), ("label", c_char_p),
                ("nsamples", c_uint32), ("samples", c_void_p), ("state", c_uint8), ("always_digest", c_bool), ("payload", c_bool),
                ("reason", c_char_p), ("device", c_uint8), ("ordinal", c_int32), ("stream", c_void_p), ("sums", c_void_p)]


class Attr(Structure):
    _fields_ = [("key", c_char_p), ("type", c_uint8), ("i", c_int64), ("d", c_double), ("s", c_char_p)]


class Identity(Structure):
    _fields_ = [("step", c_int64), ("work", c_int64), ("iteration", c_int64), ("phase", c_char_p), ("pass_", c_char_p), ("module", c_char_p),
                ("op", c_char_p), ("sample", c_char_p), ("call", c_uint32), ("occurrence", c_uint32)]


class Rng(Structure):
    _fields_ = [("generator", c_char_p), ("seed", c_uint64), ("offset", c_uint64), ("grid", c_uint64)]


class Detail(ctypes.Union):
    _fields_ = [("rng", Rng), ("room", c_uint64 * 32)]  # more than the largest member


class Event(Structure):
    _fields_ = [("seq", c_uint64), ("kind", c_int), ("autotune", c_bool), ("rank", c_uint32), ("thread", c_uint32), ("stream", c_uint64),
                ("id", c_char_p), ("who", Identity), ("nattrs", c_uint32), ("attrs", c_void_p), ("ntensors", c_uint32), ("tensors", c_void_p),
                ("nlaunches", c_uint32), ("launches", c_void_p), ("nlaunch_ranges", c_uint32), ("launch_ranges", c_void_p), ("u", Detail)]


def _f(result, *arguments):
    return ctypes.CFUNCTYPE(result, *arguments)


_CTX = _OP = c_void_p
_BEGIN = _f(_OP, _CTX, c_char_p, c_char_p)


class Api(Structure):
    _fields_ = [
        ("abi", c_uint32), ("level", c_int),
        ("ctx", _f(_CTX, c_uint32)), ("generation", _f(c_uint64)), ("storage_written", _f(None, c_uint64)), ("storage_free", _f(None, c_uint64)),
        ("step", _f(None, _CTX, c_int64)), ("phase", _f(None, _CTX, c_char_p)), ("work", _f(None, _CTX, c_int64, c_int64)),
        ("pass_", _f(None, _CTX, c_char_p)), ("sample", _f(None, _CTX, c_char_p)), ("module_begin", _f(None, _CTX, c_char_p)),
        ("module_end", _f(None, _CTX)), ("module_at", _f(None, _CTX, c_char_p, c_char_p, c_uint32)), ("autotune", _f(None, _CTX, c_bool)),
        ("op_begin", _BEGIN), ("collective_begin", _BEGIN), ("copy_begin", _f(_OP, _CTX, c_char_p)), ("weights_begin", _BEGIN),
        ("op_detail", _f(None, _OP, POINTER(Event))), ("op_attr", _f(None, _OP, POINTER(Attr))), ("op_stream", _f(None, _OP, c_uint64)),
        ("op_in", _f(None, _OP, POINTER(Tensor))), ("op_out", _f(None, _OP, POINTER(Tensor))), ("op_end", _f(None, _OP)), ("op_cancel", _f(None, _OP)),
        ("event", _f(None, _CTX, POINTER(Event))), ("metric", _f(None, _CTX, c_char_p, c_double)),
        ("readback", _f(None, _CTX, c_char_p, c_char_p, c_char_p, c_char_p, c_uint64)),
        ("leaf", _f(None, _CTX, POINTER(Tensor), c_char_p, c_char_p, c_char_p, c_uint64)), ("meta", _f(None, c_char_p, c_char_p)),
        ("fault", _f(None, c_char_p, c_char_p)), ("flush", _f(None)), ("finish", _f(None)),
        ("op_run", _f(None, _OP)),
    ]


def open_table():
    """The recorder's table, or None when there is none."""
    path = os.environ.get("RLKREC_LIBRARY")
    if not path:
        return None
    library = ctypes.CDLL(path)
    library.rlk_tap_table.restype = POINTER(Api)
    library.rlk_tap_table.argtypes = [c_uint32]
    table = library.rlk_tap_table(ABI)
    if not table or table.contents.abi != ABI or table.contents.level == 0:
        return None
    return table.contents
