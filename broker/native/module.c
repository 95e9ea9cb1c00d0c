/* The module `rotunda.broker.native.compiled`. A part is a file; it adds its functions and types to the module. */

#include "native.h"

/* The interface version: broker/native/__init__.py ignores a module built from other sources. */
#define INTERFACE 8

PyTypeObject *add_type(PyObject *module, PyType_Spec *spec)
{
    PyTypeObject *type = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);
    if (type != NULL && PyModule_AddType(module, type) < 0)
        { Py_DECREF((PyObject *)type); type = NULL; }
    return type;
}

bool is_of(PyObject *object, PyTypeObject *type)
{
    if (PyObject_TypeCheck(object, type))
        return true;
    PyErr_SetString(PyExc_TypeError, "an object of another compiled type is needed");
    return false;
}

static int fill(PyObject *module)
{
    if (PyModule_AddIntConstant(module, "INTERFACE", INTERFACE) < 0)
        return -1;
    return add_record_walk(module) < 0 || add_record_reader(module) < 0 || add_ring(module) < 0
            || add_frame_receiver(module) < 0 || add_response_sender(module) < 0
        ? -1
        : 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, fill}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "compiled", .m_doc = "Steps of a request in C.", .m_slots = slots};

PyMODINIT_FUNC PyInit_compiled(void)
{
    return PyModuleDef_Init(&definition);
}
