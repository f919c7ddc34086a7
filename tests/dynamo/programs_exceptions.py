# ruff: noqa: B012, B904, F841 - these are the ways of writing that are tested
"""Programs with graph breaks in except and finally blocks, and with handlers inside of handlers."""

from __future__ import annotations

import contextlib
import logging
import sys
import traceback

from programs import program, v


@program(breaks=True)
def except_print(T):
    def f(x):
        try:
            y = x * 2
            raise ValueError("a")
        except ValueError as e:
            z = y + 1
            print("caught", e)
            z = z * 3
        return z - 1

    return f, (v(T),)


@program
def except_item(T):
    def f(x):
        try:
            raise KeyError("k")
        except (KeyError, ValueError) as e:
            s = x.sum().item()
            y = x * s
            n = len(e.args)
        return y + n

    return f, (v(T),)


@program(breaks=True)
def except_reraise(T):
    def f(x):
        y = x + 1
        try:
            try:
                raise KeyError("k")
            except KeyError:
                print("log")
                y = y * 2
                raise
        except KeyError as e2:
            print("outer", e2)
            return y, str(e2)

    return f, (v(T),)


@program(breaks=True)
def except_raise_new(T):
    def f(x):
        y = x + 1
        try:
            try:
                raise KeyError("k")
            except KeyError as e:
                print("log")
                raise ValueError("new") from e
        except ValueError as e2:
            print("outer", e2, type(e2.__cause__).__name__, type(e2.__context__).__name__)
            y = y * 3
        return y

    return f, (v(T),)


@program
def except_context(T):
    def f(x):
        try:
            try:
                raise KeyError("k")
            except KeyError as e:
                raise ValueError("new")
        except ValueError as e2:
            c = e2.__context__
        return x * 2, type(c).__name__, e2c(c)

    def e2c(c):
        return c.args

    return f, (v(T),)


@program(breaks=True)
def except_nested(T):
    def f(x):
        for i in range(3):
            try:
                if i == 1:
                    raise ValueError(i)
                x = x + i
            except ValueError as e:
                try:
                    raise KeyError("z")
                except KeyError:
                    print("inner", i, e)
                    x = x * 2
                x = x - 1
            finally:
                x = x + 100
        return x

    return f, (v(T),)


@program(breaks=True)
def except_finally(T):
    def f(x):
        try:
            try:
                x = x + 1
                raise ValueError("q")
            finally:
                print("fin")
                x = x * 2
        except ValueError:
            return x

    return f, (v(T),)


@program(breaks=True)
def except_loop_in_except(T):
    def f(x):
        try:
            raise ValueError
        except ValueError:
            for i in range(3):
                print(i)
                x = x * 2
                if i == 1:
                    break
            while x.sum() < 500:
                x = x + 10
        return x

    return f, (v(T),)


@program(breaks=True)
def except_callee(T):
    def log(e):
        print("log", e)

    def f(x):
        try:
            raise ValueError("hi")
        except ValueError as e:
            log(e)
            x = x * 2
        return x + 1

    return f, (v(T),)


@program(breaks=True)
def except_sysexc(T):
    import sys

    def f(x):
        try:
            raise ValueError("hi")
        except ValueError:
            print(sys.exc_info()[0].__name__)
            y = x * 2
            print(type(sys.exception()).__name__)
        return y, sys.exc_info()[0]

    return f, (v(T),)


@program(breaks=True)
def except_with_swallow(T):
    class C:
        def __enter__(s):
            return s

        def __exit__(s, t, e, tb):
            print("exit", t and t.__name__, str(e))
            return True

    def f(x):
        with C():
            x = x * 2
            raise ValueError("b")
        with C():
            x = x + 1
        return x

    return f, (v(T),)


@program(breaks=True)
def except_real(T):
    def f(x, d):
        try:
            y = x * d["missing"]
        except KeyError as e:
            logging.getLogger("zz").info("no %s", e)
            y = x * 2
        try:
            z = T.cat([x, x[None]])
        except Exception as e:
            print(type(e).__name__)
            z = x
        return y + z

    return f, (v(T), {})


@program(breaks=True)
def except_return_inside(T):
    def f(x):
        try:
            int("q")
        except ValueError as e:
            print("bad")
            return x * 2
        return x

    return f, (v(T),)


@program(breaks=True)
def except_lambda_default(T):
    def f(x, n):
        while True:
            try:
                n -= 1
                if n > 0:
                    raise ValueError(n)
                break
            except ValueError as e:
                print("retry", e)
                x = x + 1
                continue
        else:
            x = x * 100
        return x

    return f, (v(T), 3)


@program(breaks=True)
def tb_print(T):
    def fail(x):
        y = x * 2
        raise ValueError("deep")

    def f(x):
        try:
            fail(x)
        except ValueError as e:
            t = traceback.format_exc()
            print([l.strip() for l in t.splitlines() if "File" in l or "Error" in l])
            fr = traceback.extract_tb(e.__traceback__)
            print([(s.name, s.lineno) for s in fr])
            x = x + 1
        return x

    return f, (v(T),)


@program(breaks=True)
def tb_here(T):
    def f(x):
        y = x * 3
        try:
            y = y + 1
            raise ValueError("here")
        except ValueError as e:
            print([(s.name, s.lineno) for s in traceback.extract_tb(sys.exc_info()[2])])
            logging.getLogger("q").debug("x", exc_info=True)
            y = y * 2
        return y, sys.exc_info()

    return f, (v(T),)


@program
def reraise_helper(T):
    def again():
        raise

    def f(x):
        try:
            try:
                raise KeyError("k")
            except KeyError:
                again()
        except KeyError as e:
            x = x * 2
        return x

    return f, (v(T),)


@program(breaks=True)
def reraise_helper_break(T):
    def again(n):
        print("again", n, sys.exc_info()[0].__name__)
        raise

    def f(x):
        try:
            try:
                raise KeyError("k")
            except KeyError:
                x = x + 1
                again(3)
        except KeyError as e:
            x = x * 2
        return x, sys.exc_info()[0]

    return f, (v(T),)


@program(breaks=True)
def nested_handlers(T):
    def f(x):
        try:
            raise KeyError("a")
        except KeyError as a:
            try:
                raise ValueError("b")
            except ValueError as b:
                print(a, b, b.__context__ is a)
                x = x * 2
                try:
                    raise TypeError("c")
                except TypeError as c:
                    print(c.__context__ is b)
                    x = x + 1
                print(sys.exc_info()[1] is b)
            print(sys.exc_info()[1] is a)
            x = x * 3
        print(sys.exc_info())
        return x

    return f, (v(T),)


@program(breaks=True)
def op_raises_in_except(T):
    def bad():
        print("bad")
        raise RuntimeError("second")

    def f(x):
        try:
            try:
                raise KeyError("a")
            except KeyError as a:
                x = x + 1
                print("h")
                bad()
            finally:
                print("fin")
                x = x * 2
        except RuntimeError as r:
            return x, str(r), type(r.__context__).__name__

    return f, (v(T),)


@program(breaks=True)
def raise_from_none(T):
    def f(x):
        try:
            try:
                raise KeyError("a")
            except KeyError:
                print("z")
                raise ValueError("v") from None
        except ValueError as e:
            print(e.__cause__, e.__suppress_context__, type(e.__context__))
        return x * 2

    return f, (v(T),)


@program(breaks=True)
def user_exc(T):
    class AppError(Exception):
        def __init__(s, code, msg="m"):
            super().__init__(msg)
            s.code = code

    def g(x, n):
        if n > 1:
            raise AppError(n)
        return x * n

    def f(x):
        out = []
        for n in range(4):
            try:
                x = g(x, n + 1)
            except AppError as e:
                print("err", e.code, e)
                out.append(e.code)
                x = x + e.code
            else:
                out.append("ok")
            finally:
                out.append("fin")
        return x, out

    return f, (v(T),)


@program(breaks=True)
def with_in_except(T):
    import contextlib

    @contextlib.contextmanager
    def c():
        print("in")
        yield 2
        print("out")

    def f(x):
        try:
            raise KeyError
        except KeyError:
            with c() as n, T.no_grad():
                x = x * n
                print("body")
                x = x + 1
        return x

    return f, (v(T),)


@program(breaks=True)
def exc_in_loop_outside(T):
    def f(x, items):
        try:
            for i in items:
                x = x + i
                if i == 2:
                    raise ValueError(i)
        except ValueError as e:
            print("stop", e)
            x = x * 2
        return x

    return f, (v(T), [1, 2, 3])


@program(breaks=True)
def finally_return(T):
    def f(x):
        for i in range(3):
            try:
                if i == 1:
                    raise ValueError
                x = x + 1
            except ValueError:
                continue
            finally:
                print("f", i)
                if i == 2:
                    return x * 5
        return x

    return f, (v(T),)


@program(breaks=True)
def nonlocal_in_except(T):
    def f(x):
        n = 0

        def g():
            nonlocal n
            n += 1
            return n

        try:
            raise KeyError
        except KeyError:
            print(g())
            x = x * n
            h = lambda: x * n
        return h(), n

    return f, (v(T),)


@program
def item_in_except_loop(T):
    def f(x):
        t = 0.0
        for i in range(x.shape[0]):
            try:
                if i % 2:
                    raise ValueError("odd")
                t += x[i].item()
            except ValueError as e:
                t -= x[i].item()
        return t, x * t

    return f, (v(T),)


@program(breaks=True)
def assert_caught(T):
    def f(x, n):
        try:
            assert n > 5, f"small {n}"
        except AssertionError as e:
            print(e)
            n = 9
        return x * n

    return f, (v(T), 3)


@program(breaks=True)
def super_in_except(T):
    class A:
        def go(s, x):
            return x + 1

    class B(A):
        def go(s, x):
            try:
                raise ValueError
            except ValueError:
                print("b")
                return super().go(x) * 2

    def f(x):
        return B().go(x)

    return f, (v(T),)


@program
def runtime_err_caught(T):
    def f(x, i, log):
        try:
            log.append(1)
            y = x[i]
            log.append(2)
        except IndexError as e:
            log.append("err")
            y = x
        return y * 2

    return f, (v(T), T.tensor([9]), [])


@program
def exc_info_while_handling(T):
    log = []

    class Logged:
        def __init__(self, name, eats):
            self.name, self.eats = name, eats

        def __enter__(self):
            return self

        def __exit__(self, kind, error, trace):
            log.append((self.name, kind and kind.__name__, trace is None))
            return self.eats

    def f(x):
        try:
            raise KeyError("k")
        except KeyError as error:
            kind, value, trace = sys.exc_info()
            x = x + len(value.args)
            told = kind.__name__, value is error, trace is None
        with contextlib.ExitStack() as stack:
            for i in range(3):
                stack.enter_context(Logged(i, i == 1))
            x = x * 2
            raise ValueError("left")
        return x, told, sys.exc_info(), log

    return f, (v(T),)
